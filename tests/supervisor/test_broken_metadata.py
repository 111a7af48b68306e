"""The disk of the metadata fails an fsync: kafkad ends, whoever owns the metadata, and starts again with all that it
has acknowledged."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.broker import KafkadProcess

from .host import SECONDS, Host

pytestmark = pytest.mark.slow

WITH_A_BAD_DISK = """
import errno, pathlib, sys
from kafkad.__main__ import main
from kafkad.meta.journal import Journal

bad, append = pathlib.Path(sys.argv.pop(1)), Journal.append

def fail(fd):
    raise OSError(errno.EIO, "Input/output error")

def append_badly(journal, payload):
    if bad.exists():
        journal._sync = fail
    append(journal, payload)

Journal.append = append_badly
sys.exit(main())
"""


def on_a_bad_disk(words: list[str], bad: Path) -> list[str]:
    python, _, _, *arguments = words
    return [python, "-c", WITH_A_BAD_DISK, str(bad), *arguments]


class OneOnABadDisk(KafkadProcess):
    def command(self) -> list[str]:
        return on_a_bad_disk(super().command(), self.log_path.with_name("bad"))


class SeveralOnABadDisk(Host):
    def command(self) -> list[str]:
        return on_a_bad_disk(super().command(), self.log_path.with_name("bad"))


def create(kafkad: KafkadProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafkad.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)], operation_timeout=5, request_timeout=5)[topic].result(SECONDS)


@pytest.mark.parametrize("several", [False, True])
def test_kafkad_ends_and_starts_again(tmp_path: Path, several: bool) -> None:
    kafkad: KafkadProcess = SeveralOnABadDisk(tmp_path, 2) if several else OneOnABadDisk(tmp_path)
    bad = kafkad.log_path.with_name("bad")
    with kafkad:
        create(kafkad, "kept")
        bad.touch()
        with pytest.raises(KafkaException):
            create(kafkad, "lost")
        assert kafkad.process is not None
        assert kafkad.process.wait(SECONDS) == 1, kafkad.log
        assert "kafkad-metadata.journal takes no more changes after a failed fsync (Input/output error)" in kafkad.log
        assert "Traceback" not in kafkad.log
        bad.unlink()
        kafkad.start()
        assert {"kept", "lost"} & AdminClient({"bootstrap.servers": kafkad.bootstrap}).list_topics().topics.keys() == {
            "kept"
        }
