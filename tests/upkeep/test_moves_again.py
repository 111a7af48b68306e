"""Replicas that move on, or back, before what they have replaced is put away."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from pathlib import Path

import pytest

from kafkad.config import LONG_MAX, LogConfig
from kafkad.errors import KafkaError, StorageError
from kafkad.log.directories import LogDirectory
from kafkad.log.files import Files
from kafkad.log.log import Log
from kafkad.log.manager import LogManager
from kafkad.log.move import Moves
from kafkad.names import TopicPartition
from kafkad.replica.durable import Durable
from tests.fakes import fails_once, hangs
from tests.full_disk import refusal
from tests.log.moving import BadDisk
from tests.one_broker import NoSync
from tests.upkeep.moving import FIRST, Broker, when_marked


def test_a_disk_that_a_replica_was_on_before_keeps_it_from_no_other(
    three: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor one on which a copy was given up. After a power cut the number in its mark says which replica is older."""
    third = three.directories[2]
    three.move(FIRST, three.second)
    three.work()
    goes_on = hangs(monkeypatch, three.first)
    three.move(FIRST, three.first)
    three.work()
    three.move(FIRST, third)
    three.work()
    assert three.home(FIRST) == third
    goes_on.set()
    three.work()


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_replica_moves_on_although_the_one_that_it_has_replaced_is_still_there(
    three: Broker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int
) -> None:
    """Marked, on a disk that has failed, or that does not let it be put away. The next start takes the later one."""
    rename, found = Files.rename, []

    def refuse(source: str, target: str) -> None:
        if source.startswith(three.first) and target.endswith("-delete"):
            raise OSError(code, os.strerror(code))
        rename(source, target)

    monkeypatch.setattr(Files, "rename", staticmethod(refuse))
    three.move(FIRST, three.second)
    three.work()
    three.append(FIRST)
    with monkeypatch.context() as patched:
        when_marked(patched, lambda: found.append(shutil.copytree(tmp_path, tmp_path / "killed")))
        three.move(FIRST, three.directories[2])
        three.work()
    assert three.home(FIRST) == three.directories[2]
    monkeypatch.undo()
    [killed] = found
    logs = LogManager([str(killed / name) for name in ("first", "second", "third")], NoSync(), three.clock)
    logs.lock()
    logs.load(lambda topic: LogConfig())
    assert (logs.logs[FIRST].directory, logs.logs[FIRST].end_offset) == (str(killed / "second" / "t-0"), 6)
    logs.close()


def move_onto_a_hung_disk(broker: Broker, patch: pytest.MonkeyPatch) -> asyncio.Event:
    """A copy has taken its replica's place; its disk does not have it until the event is set."""
    disks: list[asyncio.Event] = []
    adopt = LogManager.adopt

    def adopted(logs: LogManager, tp: TopicPartition, log: Log, directory: LogDirectory) -> None:
        adopt(logs, tp, log, directory)
        disks.append(hangs(patch, directory.path))

    with patch.context() as patched:
        patched.setattr(LogManager, "adopt", adopted)
        broker.move(FIRST, broker.second)
        broker.work()
    assert (broker.home(FIRST), len(disks)) == (broker.second, 1)
    return disks[0]


def test_a_replica_moves_back_once_what_it_has_replaced_there_is_put_away(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.log(FIRST).increment_start_offset(2)
    for write in broker.replicas.logs.collect_start_offsets():
        write.write()
    goes_on = move_onto_a_hung_disk(broker, monkeypatch)
    broker.move(FIRST, broker.first)
    broker.work(after_ms=1_000)
    assert broker.home(FIRST) == broker.second
    goes_on.set()
    broker.work()
    broker.work(after_ms=1_000)
    assert (broker.home(FIRST), broker.log(FIRST).start_offset) == (broker.first, 2)


@pytest.mark.parametrize("otherwise", ["stay", "third", "deleted", "offline"])
def test_a_replica_does_not_move_back_when_something_else_has_become_of_it(
    three: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, otherwise: str
) -> None:
    goes_on = move_onto_a_hung_disk(three, monkeypatch)
    three.move(FIRST, three.first)
    logs = three.replicas.logs
    if otherwise == "deleted":
        logs.delete(FIRST)
    elif otherwise == "offline":
        logs.fail(StorageError(three.first, "it is gone"))
    else:
        three.move(FIRST, {"stay": three.second, "third": three.directories[2]}[otherwise])
    goes_on.set()
    for _ in range(3):
        three.work(after_ms=1_000)
    home = logs.directory_of(FIRST)
    at = {"stay": three.second, "third": three.directories[2], "offline": three.second}.get(otherwise)
    assert (None if home is None else home.path) == at
    assert any("moving t-0 back" in message for message in caplog.messages) is (otherwise == "offline")


def test_a_move_back_that_a_disk_refuses_is_tried_again(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = move_onto_a_hung_disk(broker, monkeypatch)
    broker.move(FIRST, broker.first)
    fails_once(monkeypatch, Moves, "start", refusal(broker.first, errno.EMFILE))
    goes_on.set()
    broker.work()
    broker.work(after_ms=1_000)
    assert broker.home(FIRST) == broker.second
    broker.work(after_ms=1_000)
    assert broker.home(FIRST) == broker.first


def test_what_was_replaced_goes_once_a_later_copy_is_on_the_disk_if_that_of_the_first_has_failed(
    three: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nothing could move there again."""
    third = three.directories[2]
    with monkeypatch.context() as patched:
        BadDisk(Path(three.first), "rename", errno.ENOSPC, patched)
        three.move(FIRST, three.second)
        three.work()
        three.move(FIRST, third)
        three.work()
        assert three.home(FIRST) == third
        three.replicas.logs.fail(StorageError(three.second, "it is gone"))
    assert os.path.exists(os.path.join(three.first, "t-0"))
    three.work(after_ms=1_000)
    assert not os.path.exists(os.path.join(three.first, "t-0"))
    three.move(FIRST, three.first)
    three.work()
    assert three.home(FIRST) == three.first


def test_a_move_back_that_waits_goes_on_where_another_move_cannot_begin(
    three: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = move_onto_a_hung_disk(three, monkeypatch)
    three.move(FIRST, three.first)
    third = three.directories[2]
    os.mkdir(os.path.join(third, "t-0"))
    with pytest.raises(KafkaError, match="in the way"):
        three.move(FIRST, third)
    goes_on.set()
    for _ in range(3):
        three.work(after_ms=1_000)
    assert three.home(FIRST) == three.first


def test_a_move_goes_on_where_the_disk_of_another_one_is_full(three: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    third = three.directories[2]
    BadDisk(Path(third), "mkdir", errno.ENOSPC, monkeypatch)
    three.bytes_per_second = 1
    three.move(FIRST, three.second)
    with pytest.raises(StorageError):
        three.move(FIRST, third)
    three.bytes_per_second = LONG_MAX
    three.work(after_ms=1_000)
    assert three.home(FIRST) == three.second


def test_of_a_copy_that_is_made_again_nothing_is_known_from_the_one_before(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its topic was deleted, and made again, while the exchange waited for the disk of the first."""
    synced = Durable.synced
    flushed: list[Log] = []
    flush = Durable.flush

    async def note(durable: Durable, log: Log) -> None:
        flushed.append(log)
        await flush(durable, log)

    monkeypatch.setattr(Durable, "flush", note)
    with monkeypatch.context() as patched:
        goes_on = asyncio.Event()

        async def waiting(durable: Durable, log: Log) -> None:
            await goes_on.wait()
            await synced(durable, log)

        patched.setattr(Durable, "synced", waiting)
        broker.move(FIRST, broker.second)
        broker.work()
    logs = broker.replicas.logs
    logs.delete(FIRST)
    again = logs.create(FIRST, bytes(15) + b"n", LogConfig(), directory=broker.first)
    broker.ask_again(FIRST, broker.second)
    copy = logs.future(FIRST)
    goes_on.set()
    broker.work()
    assert copy in flushed
    assert again.retired
