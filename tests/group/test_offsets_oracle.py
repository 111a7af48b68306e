"""The same requests to real Kafka 3.9 and to kafkad: the same answers, and the same batches in `__consumer_offsets`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kafkad.group.records import GroupForgotten, GroupRecord, GroupWritten, OffsetCommitted, OffsetForgotten, decode
from kafkad.wire.records import iter_batches, iter_records
from tests.broker import KafkadProcess
from tests.clients.probes import Asker, Plain
from tests.oracle.kafka import Kafka, missing

pytestmark = [
    pytest.mark.slow,
    pytest.mark.java,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(missing("3.9")), reason="needs Kafka 3.9"),
]

SETTINGS = {"offsets.topic.num.partitions": "1", "offsets.retention.check.interval.ms": "300"}
EXPIRES_MS = 1000


class Batch(NamedTuple):
    attributes: int
    producer_id: int
    base_sequence: int
    records: tuple[GroupRecord | None, ...]


def commit(group: str, *offsets: tuple[str, int, int], **more: Plain) -> Plain:
    """Fields of one offset go into all of them."""
    own = {name: more.pop(name) for name in list(more) if name.startswith("commit")}
    topics: dict[str, list[Plain]] = {}
    for topic, index, offset in offsets:
        one = {"partition_index": index, "committed_offset": offset, "committed_metadata": None, **own}
        topics.setdefault(topic, []).append(one)
    return {"group_id": group, "topics": [{"name": name, "partitions": ones} for name, ones in topics.items()], **more}


def fetch(group: str, *topics: tuple[str, list[int]]) -> Plain:
    asked = [{"name": name, "partition_indexes": indexes} for name, indexes in topics]
    return {"group_id": group, "topics": asked or None}


def delete(group: str, *offsets: tuple[str, int]) -> Plain:
    topics: dict[str, list[Plain]] = {}
    for topic, index in offsets:
        topics.setdefault(topic, []).append({"partition_index": index})
    return {"group_id": group, "topics": [{"name": name, "partitions": ones} for name, ones in topics.items()]}


QUESTIONS: list[tuple[str, int, Plain]] = [
    ("OffsetCommit", 5, commit("g", ("t", 0, 5), ("t", 1, 6), committed_metadata="why")),
    ("OffsetCommit", 6, commit("g", ("t", 0, -5), committed_leader_epoch=-7)),
    ("OffsetCommit", 5, commit("g", ("t", 0, 7), ("none", 0, 8), ("t", 9, 1), ("t", -1, 1))),
    ("OffsetFetch", 5, fetch("g")),
    ("OffsetFetch", 1, fetch("g", ("t", [0, 1, 9]), ("none", [0]))),
    ("OffsetFetch", 7, fetch("nobody", ("t", [0]))),
    ("OffsetFetch", 5, {"group_id": "g", "topics": []}),
    ("OffsetCommit", 5, commit("new", ("t", 0, 1), ("none", 0, 1), generation_id_or_member_epoch=3, member_id="m")),
    ("OffsetCommit", 5, commit("new", ("t", 0, 1), member_id="m")),
    ("OffsetCommit", 5, commit("new", ("t", 0, 1), generation_id_or_member_epoch=3, member_id="m")),
    ("OffsetCommit", 7, commit("new", ("t", 0, 1), group_instance_id="i")),
    ("OffsetCommit", 5, commit("g", ("t", 0, 1), committed_metadata="m" * 4097)),
    ("OffsetCommit", 5, commit("g", ("t", 0, 1), committed_metadata="é" * 4096)),
    ("OffsetCommit", 5, commit("g", ("t", 0, 1), committed_metadata="🌍" * 2049)),
    ("OffsetCommit", 5, commit("", ("t", 0, 1))),
    ("OffsetFetch", 5, fetch("")),
    ("OffsetCommit", 0, commit("old", ("t", 0, 12))),
    ("OffsetCommit", 0, commit("old", ("t", 0, 12), committed_metadata="m" * 4097)),
    ("OffsetFetch", 0, fetch("old", ("t", [0, 1]), ("none", [0]))),
    ("OffsetFetch", 0, fetch("", ("t", [0]))),
    ("OffsetCommit", 1, commit("aged", ("t", 0, 1), commit_timestamp=17)),
    ("OffsetCommit", 3, commit("short", ("t", 0, 1), ("t", 1, 1), retention_time_ms=EXPIRES_MS)),
    ("OffsetDelete", 0, delete("nobody", ("t", 0))),
    ("OffsetDelete", 0, delete("nobody", ("none", 0))),
    ("OffsetDelete", 0, delete("g", ("t", 1), ("t", 9), ("none", 0))),
    ("OffsetDelete", 0, delete("g", ("t", 1))),
    ("OffsetDelete", 0, delete("", ("t", 0))),
    ("OffsetDelete", 0, delete("new", ("t", 0))),
    ("OffsetDelete", 0, delete("new", ("t", 0))),
    ("OffsetCommit", 5, commit("g", ("deleted", 0, 1), ("t", 0, 1))),
    ("OffsetCommit", 5, commit("only", ("deleted", 0, 1))),
    ("DeleteTopics", 1, {"topic_names": ["deleted"], "timeout_ms": 10_000}),
]


@contextlib.contextmanager
def kafkad(directory: Path) -> Iterator[tuple[int, Path]]:
    with KafkadProcess(directory, SETTINGS) as process:
        yield process.port, process.log_dirs[0]


@contextlib.contextmanager
def kafka(directory: Path) -> Iterator[tuple[int, Path]]:
    with Kafka("3.9", settings=SETTINGS, heap="512m", data=directory) as started:
        yield started.ports[0], directory


def test_answers_and_records_are_kafkas(tmp_path: Path) -> None:
    with kafka(tmp_path / "kafka") as (port, directory):
        expected = asked(port, directory)
    with kafkad(tmp_path / "kafkad") as (port, directory):
        found = asked(port, directory)
    for question, theirs, ours in zip(QUESTIONS, expected[0], found[0], strict=True):
        assert ours == theirs, question
    assert found[1] == expected[1]


def asked(port: int, directory: Path) -> tuple[list[Plain], list[Batch]]:
    """The answers, and the batches that are there when all that has to be forgotten is."""
    asker = Asker(port)
    with contextlib.closing(asker.client):
        for topic in ("t", "deleted"):
            new = {"name": topic, "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
            asker.ask("CreateTopics", 2, {"topics": [new], "timeout_ms": 10_000})
        commit_until_taken(asker)
        answers = [plain(asker.ask(*question)) for question in QUESTIONS]
        wanted = {("short", "t"), ("aged", "t"), ("g", "deleted"), ("only", "deleted")}
        deadline = time.monotonic() + 30
        while not wanted <= forgotten(batches(directory)) and time.monotonic() < deadline:
            time.sleep(0.2)
    return answers, in_order(batches(directory))


def commit_until_taken(asker: Asker) -> None:
    """Kafka names a coordinator, and knows a topic, before it can write to it."""
    while asker.ask("FindCoordinator", 3, {"key": "first", "key_type": 0}).error_code:
        time.sleep(0.1)
    for topic in ("t", "deleted"):
        while asker.ask("OffsetCommit", 5, commit("first", (topic, 1, 5))).topics[0].partitions[0].error_code:
            time.sleep(0.1)


def forgotten(found: list[Batch]) -> set[tuple[str, str]]:
    records = [record for batch in found for record in batch.records]
    return {(record.group, record.topic) for record in records if isinstance(record, OffsetForgotten)}


def in_order(found: list[Batch]) -> list[Batch]:
    """Requested changes keep their order; those of a look at all groups come in any order, and perhaps in between."""
    later = {"short", "aged", "only", "first"}
    asked_for = [batch for batch in found if not {group_of(record) for record in batch.records} & later]
    return asked_for + sorted((batch for batch in found if batch not in asked_for), key=str)


def group_of(record: GroupRecord | None) -> str:
    assert isinstance(record, OffsetCommitted | OffsetForgotten | GroupWritten | GroupForgotten)
    return record.group


def batches(directory: Path) -> list[Batch]:
    """With the times left out, but for how they differ."""
    found = []
    for path in sorted(directory.glob("**/__consumer_offsets-0/*.log")):
        view = memoryview(path.read_bytes())
        for at, header in iter_batches(view):
            records = [decode(record.key or b"", record.value) for record in iter_records(view, at, header)]
            timeless = tuple(sorted(map(without_time, records), key=str))
            found.append(Batch(header.attributes, header.producer_id, header.base_sequence, timeless))
    return found


def without_time(record: GroupRecord | None) -> GroupRecord | None:
    if not isinstance(record, OffsetCommitted):
        return record
    expires = record.expire_timestamp - record.commit_timestamp if record.expire_timestamp >= 0 else -1
    return record._replace(commit_timestamp=min(record.commit_timestamp, 1000), expire_timestamp=expires)


def plain(message: Any) -> Plain:
    """Lists in no order: that of Kafka's is one of hash maps."""
    if isinstance(message, list):
        return sorted(map(plain, message), key=str)
    if not hasattr(message, "__schema__"):
        return message
    fields = {field.name: getattr(message, field.name) for field in message.__schema__.fields}
    return {name: plain(value) for name, value in fields.items() if name not in ("throttle_time_ms", "topic_id")}
