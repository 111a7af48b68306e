"""Recent commits, from records as coordinators write them."""

from __future__ import annotations

from typing import Any

from kafkad.names import TopicPartition
from kafkad.wire.log_records.consumer_offsets import GroupMetadataKey, OffsetCommitKey, OffsetCommitValue
from kafkad.wire.records import Record
from kafkad.wire.schema import encode
from kctl.groups.recent_commits import Recent, seen


def written(version: int, key: Any, value: Any = None) -> Record:
    head = version.to_bytes(2, "big")
    return Record(0, 0, head + encode(key, version), None if value is None else b"\0\3" + encode(value, 3))


def test_what_records_say_of_groups() -> None:
    commit = OffsetCommitValue(offset=5)
    records = [
        written(1, OffsetCommitKey(group="a", topic="t", partition=1), commit),
        written(1, OffsetCommitKey(group="a", topic="t", partition=2)),
        written(1, OffsetCommitKey(group="ab", topic="t", partition=0), commit),
        written(2, GroupMetadataKey(group="b")),
        Record(0, 0, None, None),
        Record(0, 0, b"\0\1\0\1a", b""),
    ]
    assert seen(["a", "b", "c"], records) == {
        "a": Recent(frozenset({TopicPartition("t", 1)})),
        "b": Recent(changed=True),
        "c": Recent(),
    }, "an offset that expired was not committed"
