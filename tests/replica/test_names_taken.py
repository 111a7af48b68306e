"""What has the name of a replica's directory: it is told once, and the replica is made when it is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition
from tests.full_disk import no_room
from tests.one_broker import OneBroker
from tests.replica.requests import ID, delete, give, give_without_room, made


def in_the_way(broker: OneBroker, partition: int) -> Path:
    """Of a partition of topic `a`, in the log directory that it is to be in."""
    directory = broker.directories[0]
    broker.replicas.logs.prefer(TopicPartition("a", partition), directory)
    there = Path(directory, f"a-{partition}")
    there.touch()
    return there


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if "move it away" in record.message]


def try_again(broker: OneBroker) -> None:
    broker.run(broker.parts.upkeep.make_what_was_refused())


def test_a_partition_whose_name_is_taken_is_made_once_that_is_moved_away(
    broker: OneBroker, caplog: pytest.LogCaptureFixture
) -> None:
    there = in_the_way(broker, 0)
    assert give(broker, ID, 0, 1) == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
    try_again(broker)
    assert give(broker, ID, 0) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert sorted(broker.replicas.of_topic("a")) == [1]
    [line] = told(caplog)
    assert line.startswith("cannot make a replica of a-0: ")
    there.unlink()
    assert made(broker) == [0, 1]
    assert give(broker, ID, 0) == [ErrorCode.NONE]


def test_a_partition_whose_name_is_taken_is_made_in_no_other_directory_meanwhile(broker: OneBroker) -> None:
    """A start could take what is in the way for the partition."""
    there = Path(broker.directories[0], "a-0")
    there.touch()
    assert give(broker, ID, 0) == [ErrorCode.KAFKA_STORAGE_ERROR]
    for partition in (1, 2, 3):
        broker.replicas.logs.prefer(TopicPartition("a", partition), broker.directories[0])
    give(broker, ID, 1, 2, 3)
    try_again(broker)
    assert give(broker, ID, 0) == [ErrorCode.KAFKA_STORAGE_ERROR]
    there.unlink()
    try_again(broker)
    assert broker.replicas.get("a", 0).log.directory == str(there)


def test_a_name_that_is_taken_while_a_disk_is_full_is_told_when_there_is_room(
    broker: OneBroker, caplog: pytest.LogCaptureFixture
) -> None:
    give_without_room(broker, ID, 0)
    there = in_the_way(broker, 0)
    try_again(broker)
    try_again(broker)
    assert len(told(caplog)) == 1
    there.unlink()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(broker.replicas.logs.files, "mkdir", no_room)
        try_again(broker)
    assert made(broker) == [0]


def test_a_partition_whose_name_is_taken_is_made_no_more_when_its_topic_is_deleted(broker: OneBroker) -> None:
    there = in_the_way(broker, 0)
    give(broker, ID, 0)
    assert delete(broker, 0) == {ErrorCode.NONE}
    there.unlink()
    try_again(broker)
    assert broker.replicas.find("a", 0) is None
