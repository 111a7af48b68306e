from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafkad.names import TopicPartition
from kafkad.wire.messages.list_offsets import ListOffsetsRequest
from kctl.errors import Exit, KctlError
from kctl.reach.connection import Connection
from kctl.reach.offsets import LATEST
from kctl.topics.truncate import Cut, new_start, parse_offset_file
from tests.kctl.conftest import Kctl


@pytest.mark.parametrize(
    ("target", "expected"),
    [(LATEST, 20), (0, 5), (5, 5), (12, 12), (20, 20)],
)
def test_where_a_partition_of_5_to_20_begins_then(target: int, expected: int) -> None:
    assert new_start(target, 5, 20) == expected


def test_bytes_that_go() -> None:
    where = TopicPartition("a", 0)
    assert Cut(where, 0, 5, 10, 1000).deleted_bytes == 500
    assert Cut(where, 0, 0, 0, 0).deleted_bytes == 0
    assert Cut(where, 0, 5, 10, None).deleted_bytes is None


def test_files_of_offsets() -> None:
    document = {"version": 1, "partitions": [{"topic": "a", "partition": 1, "offset": -1}]}
    assert parse_offset_file(document, "f") == {TopicPartition("a", 1): LATEST}


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        {"version": 2, "partitions": []},
        {"partitions": [{"topic": "a", "partition": 1}]},
        {"partitions": [{"topic": "a", "partition": 1, "offset": -2}]},
        {"partitions": [{"topic": "a", "partition": 1, "offset": 1}, {"topic": "a", "partition": 1, "offset": 2}]},
    ],
)
def test_files_of_offsets_that_are_wrong(document: object) -> None:
    with pytest.raises(KctlError) as caught:
        parse_offset_file(document, "offsets.json")
    assert (caught.value.exit_code, caught.value.what.startswith("offsets.json")) == (Exit.USAGE, True)


def filled(kctl: Kctl, name: str, tmp_path: Path) -> None:
    """Two partitions with ten records each."""
    assert kctl("topics", "create", name, "-p", 2, "-r", 1, "-y").code == Exit.DONE
    lines = tmp_path / "lines"
    lines.write_text("".join(f"record {number}\n" for number in range(10)))
    for partition in (0, 1):
        ran = kctl("produce", name, "--partition", partition, "--file", lines, "-q")
        assert ran.code == Exit.DONE, ran.err


def starts(kctl: Kctl, name: str, at: str = "earliest") -> list[int]:
    ran = kctl("topics", "offsets", name, "--at", at, "-o", "json")
    return [row["offset"] for row in json.loads(ran.out)["items"]]


def test_truncate_to_an_offset_and_whole(on_broker: Kctl, tmp_path: Path) -> None:
    filled(on_broker, "cut-a", tmp_path)
    dry = on_broker("topics", "truncate", "cut-a", "--before", 4, "--dry-run", "-o", "json")
    assert [row["deleted_records"] for row in json.loads(dry.out)["items"]] == [4, 4]
    assert starts(on_broker, "cut-a") == [0, 0]
    ran = on_broker("topics", "truncate", "cut-a", "--before", 4, "--partitions", 1, "-y")
    assert (ran.code, "verified" in ran.err) == (Exit.DONE, True)
    assert starts(on_broker, "cut-a") == [0, 4]
    assert on_broker("topics", "truncate", "cut-a", "--all", "-y").code == Exit.DONE
    assert (starts(on_broker, "cut-a"), starts(on_broker, "cut-a", "latest")) == ([10, 10], [10, 10])
    assert "nothing to do" in on_broker("topics", "truncate", "cut-a", "--all", "-y").err


def test_truncate_by_time_and_by_file(on_broker: Kctl, tmp_path: Path) -> None:
    filled(on_broker, "cut-b", tmp_path)
    assert "nothing to do" in on_broker("topics", "truncate", "cut-b", "--before", "@-1h", "-y").err
    file = tmp_path / "offsets.json"
    file.write_text('{"partitions": [{"topic": "cut-b", "partition": 0, "offset": 7}], "version": 1}')
    ran = on_broker("topics", "truncate", "--offset-json-file", file, "-y", "-o", "json")
    assert [row["low_watermark"] for row in json.loads(ran.out)["items"]] == [7]
    assert on_broker("topics", "truncate", "cut-b", "--before", "@now", "-y").code == Exit.DONE
    assert starts(on_broker, "cut-b") == [10, 10]


def test_truncate_beyond_the_end_is_refused(on_broker: Kctl, tmp_path: Path) -> None:
    filled(on_broker, "cut-beyond", tmp_path)
    ran = on_broker("topics", "truncate", "cut-beyond", "--before", "1763700000000", "-y")
    assert (ran.code, starts(on_broker, "cut-beyond")) == (Exit.REFUSED, [0, 0])
    assert "cut-beyond-0 ends at 10, before offset 1763700000000: nothing of it is deleted" in ran.err


def test_of_a_compacted_topic_nothing_is_deleted(on_broker: Kctl, monkeypatch: pytest.MonkeyPatch) -> None:
    create = ("topics", "create", "cut-compacted", "-p", 1, "-r", 1, "--config", "cleanup.policy=compact")
    assert on_broker(*create).code == Exit.DONE
    assert on_broker("produce", "cut-compacted", "--key", "k", "--value", "v", "-q").code == Exit.DONE
    told = "is compacted: records are not deleted from the beginning where cleanup.policy lacks delete"
    dry = on_broker("topics", "truncate", "cut-compacted", "--all", "--dry-run")
    assert (dry.code, dry.out, f"error: cut-compacted {told}" in dry.err) == (Exit.REFUSED, "", True)
    assert "cleanup.policy+=delete" in dry.err
    monkeypatch.setattr("kctl.topics.truncate.described", lambda *asked: ({}, []))  # as without the right to see it
    ran = on_broker("topics", "truncate", "cut-compacted", "--all", "-y")
    assert (ran.code, f"error: cut-compacted-0 {told}" in ran.err, "policy.class.name" in ran.err) == (
        Exit.REFUSED,
        True,
        False,
    )


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["cut-none"], Exit.USAGE, "say what to delete"),
        (["cut-none", "--all", "--before", "3"], Exit.USAGE, "say what to delete"),
        (["--all"], Exit.USAGE, "no topic is named"),
        (["cut-none", "--all"], Exit.NOT_FOUND, 'topic "cut-none" does not exist'),
        (["cut-none", "--offset-json-file", "x"], Exit.USAGE, "the file says which"),
        (["--offset-json-file", "no-such-file"], Exit.NOT_FOUND, "no-such-file"),
    ],
)
def test_truncate_refuses(on_broker: Kctl, arguments: list[str], code: Exit, told: str) -> None:
    ran = on_broker("topics", "truncate", *arguments, "-y")
    assert (ran.code, told in ran.err) == (code, True), ran.err


def test_truncate_asks(on_broker: Kctl, tmp_path: Path) -> None:
    filled(on_broker, "cut-asked", tmp_path)
    ran = on_broker("topics", "truncate", "cut-asked", "--all")
    assert (ran.code, "no terminal to confirm on: Delete 20 records" in ran.err) == (Exit.REFUSED, True)
    assert starts(on_broker, "cut-asked") == [0, 0]


def test_offsets_at_times(on_broker: Kctl, tmp_path: Path) -> None:
    filled(on_broker, "offsets-a", tmp_path)
    assert starts(on_broker, "offsets-a", "latest") == [10, 10]
    assert starts(on_broker, "offsets-a", "@-1h") == [0, 0]
    assert starts(on_broker, "offsets-a", "@+1h") == [None, None]
    assert all(offset is not None for offset in starts(on_broker, "offsets-a", "max-timestamp"))
    ran = on_broker("topics", "offsets", "offsets-none")
    assert ran.code == Exit.NOT_FOUND


def test_brokers_that_do_not_know_the_newest_record(
    on_broker: Kctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As before Kafka 3.0: what asks for it means any record to them."""
    filled(on_broker, "newest", tmp_path)
    group = ("groups", "reset-offsets", "newest-late", "--topic", "newest", "--to", "0", "-y", "--undo-dir", tmp_path)
    assert on_broker(*group).code == Exit.DONE
    last = Connection.version_of

    def version_of(self: Connection, request: Any) -> int | None:
        return 6 if request.__schema__ is ListOffsetsRequest.__schema__ else last(self, request)

    monkeypatch.setattr(Connection, "version_of", version_of)
    ran = on_broker("topics", "offsets", "newest", "--at", "max-timestamp")
    told = "only brokers of Kafka 3.0 and later can tell, not broker"
    assert (ran.code, told in ran.err, "(UNSUPPORTED_VERSION)" in ran.err) == (Exit.FAILED, True, True)
    assert starts(on_broker, "newest", "latest") == [10, 10]
    ran = on_broker("groups", "describe", "newest-late", "-o", "csv", "--no-headers", "--columns", "lag,behind_ms")
    assert (ran.code, ran.out.split()) == (Exit.DONE, ["10,", "10,"])
    ran = on_broker("doctor", "--only", "clocks")
    assert (ran.code, told in ran.out) == (Exit.FAILED, True)
    ran = on_broker("topics", "describe", "newest", "-o", "json")
    (described,) = json.loads(ran.out)["items"]
    assert [row["last_timestamp"] for row in described["partitions"]] == [None, None]


def test_offsets_at_no_time(on_broker: Kctl) -> None:
    ran = on_broker("topics", "offsets", "--at", "sometime")
    assert (ran.code, '"sometime" is not a time' in ran.err) == (Exit.USAGE, True)
