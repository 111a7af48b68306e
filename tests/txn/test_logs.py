"""The logs that transactions leave behind are those of Kafka 3.9.2 and 4.3.1, byte for byte but for ids and times.

Of the offsets that 4.3.1 has committed only the batches: their values are those of a release after 3.9.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker import KafkadProcess
from tests.txn.golden import DIRECTORY
from tests.txn.story import LOGS, OFFSETS, SETTINGS, batches, prepare, settle, tell


@pytest.mark.parametrize(("release", "level", "new"), [("3.9", "0", False), ("4.3", "2", False), ("4.3", "2", True)])
def test_the_logs_are_kafkas(release: str, level: str, new: bool, tmp_path: Path) -> None:
    with KafkadProcess(tmp_path, SETTINGS | {"kafkad.transaction.version": level}) as kafkad:
        prepare(kafkad.port)
        tell(kafkad.port, new=new)
        settle(kafkad.port)
    told = DIRECTORY / release / ("new-client" if new else "old-client")
    for partition in LOGS:
        ours, of_kafka = batches(kafkad.log_directory() / partition), batches(told / partition)
        if partition == OFFSETS and release == "4.3":
            ours, of_kafka = ([one._replace(size=0, records=()) for one in log] for log in (ours, of_kafka))
        assert ours == of_kafka, partition
