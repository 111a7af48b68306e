"""Topics are created, grown and deleted: shown, asked for, done, read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NoReturn

import pytest

from kctl.errors import Exit, KctlError
from kctl.partitions import requests
from kctl.reach import connection
from kctl.reach.session import Session
from tests.kctl.conftest import Kctl, Ran


def item(ran: Ran) -> dict[str, object]:
    (found,) = json.loads(ran.out)["items"]
    return dict(found)


def names(kctl: Kctl, pattern: str) -> list[str]:
    return kctl("topics", "list", "--match", pattern, "-o", "name").out.split()


def test_create_shows_where_replicas_are_and_reads_back(on_broker: Kctl) -> None:
    ran = on_broker("topics", "create", "create-a", "-p", 2, "-r", 1, "--config", "retention.ms=7d", "-y")
    assert ran.code == Exit.DONE
    assert "retention.ms=604800000" in ran.out
    assert "create-a     0  1" in ran.out
    assert "verified: all brokers know the topics" in ran.err
    assert " topics delete create-a" in ran.err
    assert names(on_broker, "create-a") == ["create-a"]


def test_create_as_json(on_broker: Kctl) -> None:
    found = item(on_broker("topics", "create", "create-json", "-p", 2, "-r", 1, "-y", "-o", "json"))
    assert (found["result"], found["partitions"], found["placement"]) == ("created", 2, [[1], [1]])


def test_create_dry_run_creates_nothing(on_broker: Kctl) -> None:
    ran = on_broker("topics", "create", "create-dry", "-p", 2, "-r", 1, "--fixed-start", "--dry-run", "-o", "json")
    assert (ran.code, item(ran)["placement"]) == (Exit.DONE, [[1], [1]])
    assert json.loads(ran.out)["dry_run"] is True
    assert names(on_broker, "create-dry") == []


def test_create_does_not_ask_but_for_a_protected_cluster(on_broker: Kctl, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = on_broker("topics", "create", "create-unasked", "-p", 1, "-r", 1)
    assert ran.code == Exit.DONE
    assert ran.out.splitlines()[1].split() == ["create-unasked", "1", "1", "-", "created"]
    assert ran.err.endswith(" topics delete create-unasked\n")
    assert on_broker("topics", "clone", "create-unasked", "create-cloned").code == Exit.DONE
    monkeypatch.setenv("KCTL_PROTECTED", "true")
    assert on_broker("topics", "create", "create-protected", "-y").code == Exit.REFUSED
    assert names(on_broker, "create-*d") == ["create-cloned", "create-unasked"]


def test_of_several_names_the_others_are_done(on_broker: Kctl) -> None:
    ran = on_broker("topics", "create", "some-a", "some b", "some-b", "-p", 2, "-r", 1)
    assert (ran.code, ran.err.count("error:")) == (Exit.USAGE, 1)
    ran = on_broker("topics", "create", "some-a", "some-c", "-p", 2, "-r", 1)
    assert (ran.code, 'topic "some-a" exists already' in ran.err) == (Exit.FAILED, True)
    assert names(on_broker, "some-*") == ["some-a", "some-b", "some-c"]
    for words in (
        ["alter", "some-a", "some-x", "--config", "retention.ms=1d"],
        ["add-partitions", "some-a", "some-x", "-p", 3],
        ["truncate", "some-a", "some-x", "--all"],
        ["alter", "some-b", "some-x", "-p", 4],
    ):
        dry = on_broker("topics", *words, "--dry-run")
        assert (dry.code, "does not exist" in dry.err) == (Exit.NOT_FOUND, True), words
        ran = on_broker("topics", *words, "-y")
        assert (ran.code, ran.err.count("does not exist")) == (Exit.NOT_FOUND, 1), words
    ran = on_broker("configs", "set", "topic/some-x", "topic/some-b", "retention.ms=2d", "-y")
    assert (ran.code, "verified: read back" in ran.err) == (Exit.NOT_FOUND, True)
    found = json.loads(on_broker("topics", "list", "--match", "some-*", "-o", "json").out)["items"]
    assert [(row["partitions"], row["retention_ms"]) for row in found] == [
        (3, 86_400_000),
        (4, 172_800_000),
        (2, 604_800_000),
    ]
    ran = on_broker("topics", "add-partitions", "some-a", "some-c", "-p", 2, "-y")
    assert (ran.code, "would remove data" in ran.err) == (Exit.USAGE, True)


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["a b"], Exit.USAGE, "a topic cannot be called"),
        (
            ["create-no", "-r", "9"],
            Exit.FAILED,
            'topic "create-no": replication 9 needs 9 brokers, 1 is alive (INVALID_REPLICATION_FACTOR)',
        ),
        (
            ["create-no", "--config", "retention.mss=7d"],
            Exit.USAGE,
            'topic "create-no": there is no setting "retention.mss"',
        ),
        (["create-no", "--config", "retention.ms=soon"], Exit.USAGE, 'retention.ms: "soon" is not a duration'),
        (["create-no", "--config", "no.such.thing=1"], Exit.FAILED, "INVALID_CONFIG"),
        (["create-no", "--config", "min.insync.replicas=0"], Exit.FAILED, "INVALID_CONFIG"),
        (["create-no", "--replicas", "0=7"], Exit.NOT_FOUND, "broker 7 does not exist"),
        (["create-no", "--replicas", "0=1", "-p", "1"], Exit.USAGE, "--replicas already gives"),
        (["create-no", "--like", "create-unknown"], Exit.NOT_FOUND, 'topic "create-unknown" does not exist'),
        (["create-no", "--fixed-start"], Exit.USAGE, "--fixed-start needs"),
        (["-f", "no-such-file.yaml"], Exit.NOT_FOUND, "no-such-file.yaml"),
        ([], Exit.USAGE, "no topic is named"),
    ],
)
def test_create_refuses(on_broker: Kctl, arguments: list[str], code: Exit, told: str) -> None:
    ran = on_broker("topics", "create", *arguments, "-y")
    assert (ran.code, told in ran.err) == (code, True), ran.err
    assert names(on_broker, "create-no*") == []


def test_create_what_is_there(on_broker: Kctl) -> None:
    create = ("topics", "create", "create-twice", "-y")
    assert on_broker(*create, "-p", 2, "-r", 1, "--config", "retention.ms=1d").code == Exit.DONE
    again = on_broker(*create, "-p", 2)
    assert (again.code, "TOPIC_ALREADY_EXISTS" in again.err) == (Exit.FAILED, True)
    same = on_broker(*create, "-p", 2, "--config", "retention.ms=1d", "--if-not-exists")
    assert same.code == Exit.DONE
    assert "nothing to do" in same.err
    partly = on_broker(*create, "create-twi ce", "-p", 2, "--if-not-exists")
    assert (partly.code, "the others exist, as asked for" in partly.err) == (Exit.USAGE, True)
    assert "all of them" not in partly.err
    other = on_broker(*create, "-p", 3, "--config", "retention.ms=2d", "--if-not-exists")
    assert other.code == Exit.REFUSED
    assert "it has 2 partitions, not 3; its retention.ms is 86400000 (1d), not 172800000 (2d)" in other.err


def test_create_from_a_file_and_like_another(on_broker: Kctl, tmp_path: Path) -> None:
    file = tmp_path / "topics.yaml"
    file.write_text("topics:\n- name: create-file-a\n  partitions: 3\n  configs: {retention.ms: 1d}\n- create-file-b\n")
    assert on_broker("topics", "create", "-f", file, "-p", 1, "-r", 1, "-y").code == Exit.DONE
    rows = json.loads(on_broker("topics", "list", "--match", "create-file-*", "-o", "json").out)["items"]
    assert [(row["topic"], row["partitions"]) for row in rows] == [("create-file-a", 3), ("create-file-b", 1)]
    assert on_broker("topics", "create", "create-like", "--like", "create-file-a", "-y").code == Exit.DONE
    found = item(on_broker("topics", "describe", "create-like", "-o", "json"))
    assert (found["partition_count"], [c["value"] for c in found["configs"]]) == (3, ["86400000"])  # type: ignore[attr-defined]
    for text, told in (
        ("topics: [", f"{file} is not YAML: line 2: "),
        ("topics: {create-file-c: [3]}", f"{file}: topic create-file-c must be a mapping of fields\n"),
        (
            "- {name: create-file-c, configs: {retention.ms: {a: 1}}}",
            f"{file}, topic 1: retention.ms must be a value or a list of values\n",
        ),
    ):
        file.write_text(text)
        assert on_broker("topics", "create", "-f", file, "-y").err.startswith(f"error: {told}")


def test_add_partitions(on_broker: Kctl) -> None:
    on_broker("topics", "create", "grow-a", "-p", 2, "-r", 1, "-y")
    ran = on_broker("topics", "add-partitions", "grow-a", "-p", 4, "-y")
    assert ran.code == Exit.DONE
    assert "may go to another partition" in ran.err
    assert "verified" in ran.err
    assert item(on_broker("topics", "list", "grow-a", "-o", "json"))["partitions"] == 4
    fewer = on_broker("topics", "add-partitions", "grow-a", "-p", 3, "-y")
    assert fewer.code == Exit.USAGE
    assert (
        'topic "grow-a" has 4 partitions; 3 would remove data, which Kafka cannot do (INVALID_PARTITIONS)' in fewer.err
    )
    assert "nothing to do" in on_broker("topics", "add-partitions", "grow-a", "-p", 4, "-y").err


def test_delete(on_broker: Kctl, tmp_path: Path) -> None:
    on_broker("topics", "create", "delete-a", "delete-b", "-p", 1, "-r", 1, "-y")
    assert on_broker("topics", "delete", "delete-a").code == Exit.REFUSED
    dry = on_broker("topics", "delete", "--match", "delete-*", "--dry-run", "-o", "json")
    assert [row["topic"] for row in json.loads(dry.out)["items"]] == ["delete-a", "delete-b"]
    ran = on_broker("topics", "delete", "--match", "delete-*", "-y", "--undo-dir", tmp_path)
    assert (ran.code, "verified: no broker knows them any more" in ran.err) == (Exit.DONE, True)
    assert names(on_broker, "delete-*") == []


def test_delete_goes_on_where_moves_under_way_are_not_known(on_broker: Kctl, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not everybody may ask for them; what is saved of the topics may have a replica too many then."""

    def refuse(session: Session, partitions: object = None) -> NoReturn:
        raise KctlError("not authorized")

    on_broker("topics", "create", "deleted-unmoved", "-p", 1, "-r", 1, "-y")
    monkeypatch.setattr(requests, "active_moves", refuse)
    ran = on_broker("topics", "delete", "deleted-unmoved", "--dry-run")
    assert (ran.code, "moves under way are not known: not authorized\n" in ran.err) == (Exit.DONE, True)


def test_delete_with_brokers_before_2_8(on_broker: Kctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection._BY_NAME, 20, 5)
    assert on_broker("topics", "create", "deleted-old", "-p", 1).code == Exit.DONE
    ran = on_broker("topics", "delete", "deleted-old", "-y", "--undo-dir", tmp_path)
    assert (ran.code, "no broker knows them any more" in ran.err) == (Exit.DONE, True), ran.err


def test_delete_what_is_not_there(on_broker: Kctl, tmp_path: Path) -> None:
    on_broker("topics", "create", "kept-delett", "-p", 1, "-r", 1, "-y")
    ran = on_broker("topics", "delete", "kept-delett", "kept-deletd", "-y", "--undo-dir", tmp_path)
    assert (ran.code, "does not exist" in ran.err) == (Exit.NOT_FOUND, True)
    assert "verified: no broker knows them any more" in ran.err
    assert names(on_broker, "kept-delett") == []
    ran = on_broker("topics", "delete", "kept-deletd", "-y", "-o", "json")
    assert (ran.code, json.loads(ran.out)["items"]) == (Exit.NOT_FOUND, [])
    assert on_broker("topics", "delete", "kept-deletd", "-y", "--if-exists").code == Exit.DONE
    assert on_broker("topics", "delete", "-y").code == Exit.USAGE


def test_clone(on_broker: Kctl) -> None:
    on_broker("topics", "create", "clone-a", "-p", 3, "-r", 1, "--config", "retention.ms=1d", "-y")
    ran = on_broker("topics", "clone", "clone-a", "clone-b", "--config", "segment.bytes=1MiB", "-y")
    assert ran.code == Exit.DONE
    found = json.loads(on_broker("topics", "describe", "clone-b", "-o", "json").out)["items"][0]
    assert found["partition_count"] == 3
    assert {c["name"]: c["value"] for c in found["configs"]} == {"retention.ms": "86400000", "segment.bytes": "1048576"}
    assert on_broker("topics", "clone", "clone-a", "clone-b", "-y").code == Exit.FAILED
    assert on_broker("topics", "clone", "clone-none", "clone-c", "-y").code == Exit.NOT_FOUND


def test_alter(on_broker: Kctl) -> None:
    on_broker("topics", "create", "alter-a", "-p", 1, "-r", 1, "--config", "segment.bytes=1MiB", "-y")
    ran = on_broker(
        "topics", "alter", "alter-a", "-p", 2, "--config", "retention.ms=1d", "--unset", "segment.bytes", "-y"
    )
    assert (ran.code, "verified: read back" in ran.err) == (Exit.DONE, True)
    assert " configs set topic/alter-a segment.bytes=1048576" in ran.err
    found = item(on_broker("topics", "describe", "alter-a", "-o", "json"))
    assert (found["partition_count"], found["configs"]) == (
        2,
        [{"name": "retention.ms", "value": "86400000", "source": "topic", "default": False}],
    )
    assert "nothing to do" in on_broker("topics", "alter", "alter-a", "-p", 2, "-y").err
    assert on_broker("topics", "alter", "alter-a", "-p", 1, "-y").code == Exit.USAGE
    assert on_broker("topics", "alter", "alter-a", "-y").code == Exit.USAGE
    assert on_broker("topics", "alter", "alter-none", "-p", 2, "-y").code == Exit.NOT_FOUND


def test_clone_with_its_records(on_broker: Kctl, tmp_path: Path) -> None:
    on_broker("topics", "create", "clone-full", "-p", 2, "-r", 1, "-y")
    lines = tmp_path / "lines"
    lines.write_text("one\ntwo\n")
    assert on_broker("produce", "clone-full", "--partition", 1, "--file", lines, "-q").code == Exit.DONE
    ran = on_broker("topics", "clone", "clone-full", "clone-filled", "--data", "-y", "-o", "json")
    assert (ran.code, json.loads(ran.out)["errors"]) == (Exit.DONE, [])
    ends = json.loads(on_broker("topics", "offsets", "clone-filled", "-o", "json").out)["items"]
    assert [row["offset"] for row in ends] == [0, 2]


def test_a_name_that_collides_is_told_why(on_broker: Kctl) -> None:
    assert on_broker("topics", "create", "col.liding", "-p", 1, "-r", 1).code == Exit.DONE
    ran = on_broker("topics", "create", "col_liding", "-p", 1, "-r", 1)
    error, hint = ran.err.splitlines()
    assert "collides with existing topics: col.liding" in error
    assert hint.strip() == "names that differ only in . and _ would share their metrics: choose another"
