"""Kafka's own dump tool reads what we wrote, and finds that the indexes fit the log."""

from __future__ import annotations

import re
import subprocess

import pytest

from kafkad.log.log import Log
from kafkad.log.truncation import truncate_to
from kafkad.wire.control import ControlRecord, build_marker
from tests.log.conftest import Home, append, batch, records
from tests.oracle.kafka import missing, tool

pytestmark = [
    pytest.mark.slow,
    pytest.mark.java,
    pytest.mark.skipif(missing("3.9") is not None, reason=str(missing("3.9"))),
]


def write(log: Log) -> None:
    """Every codec, timestamps in no order, two epochs, transactions over several segments."""
    for i in range(120):
        values = [b"%d-%d " % (i, j) * 10 for j in range(1 + i % 4)]
        append(log, batch(*values, timestamp=1000 + i * 7919 % 5000, codec=i % 5), epoch=i // 70)
    for producer_id in range(6):
        for sequence in range(5):
            data = batch(
                b"t" * 300, producer_id=producer_id, producer_epoch=1, base_sequence=sequence, transactional=True
            )
            append(log, data, epoch=1)
        marker = ControlRecord(producer_id % 2 == 0, 3)
        append(log, build_marker(marker, producer_id=producer_id, producer_epoch=1, timestamp=9000), epoch=1)


def dump(paths: list[str]) -> str:
    command = tool("3.9", "dump-log", "--deep-iteration", "--print-data-log", "--files", ",".join(paths))
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout + done.stderr


def test_kafkas_tools_accept_the_files(home: Home) -> None:
    log = home.open()
    write(log)
    log.increment_start_offset(10)
    truncate_to(log, log.end_offset - 3)
    append(log, batch(b"after the truncation", timestamp=2), epoch=4)
    offsets = [record.offset for record in records(log, 10)]
    log.close()
    for suffix in ("log", "index", "timeindex", "txnindex", "snapshot"):
        paths = sorted(str(path) for path in home.directory.glob(f"*.{suffix}"))
        assert len(paths) >= 3
        text = dump(paths)
        for complaint in ("ismatch", "isvalid: false", "Exception", "corrupt", "Non-consecutive", "out of order"):
            assert complaint not in text, text
        if suffix == "log":
            found = [int(offset) for offset in re.findall(r"^\| offset: (\d+)", text, re.MULTILINE)]
            assert [offset for offset in found if offset >= 10] == offsets
        if suffix == "txnindex":
            assert len(re.findall("producerId: ", text)) == 2
