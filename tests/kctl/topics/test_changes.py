"""Topics are created, grown and deleted: shown, asked for, done, read back."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

import pytest

from kafkad.names import TopicPartition
from kctl.configs import of_topics
from kctl.errors import Exit, KctlError
from kctl.groups.group import Listed
from kctl.groups.group_lag import ChosenGroups
from kctl.partitions import requests
from kctl.reach import connection
from kctl.reach.session import Session
from kctl.topics import details, readers, undo_files
from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl, Ran
from tests.kctl.groups.reading import commit, make_topic


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
            "replication 9 needs 9 brokers, 1 is alive (INVALID_REPLICATION_FACTOR)",
        ),
        (["create-no", "--config", "retention.mss=7d"], Exit.USAGE, 'there is no setting "retention.mss"'),
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


def test_delete_does_not_ask_for_moves_under_way(on_broker: Kctl, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not everybody may, and nothing that it shows depends on them."""

    def refuse(session: Session, partitions: object = None) -> NoReturn:
        raise KctlError("not authorized")

    on_broker("topics", "create", "deleted-unmoved", "-p", 1, "-r", 1, "-y")
    monkeypatch.setattr(requests, "active_moves", refuse)
    ran = on_broker("topics", "delete", "deleted-unmoved", "--dry-run")
    assert (ran.code, "moves" in ran.err) == (Exit.DONE, False)


def test_a_topic_that_was_deleted_can_be_made_again_without_its_records(
    on_broker: Kctl, broker: KafkadProcess, tmp_path: Path
) -> None:
    settings = ("--config", "retention.ms=7d", "--config", "cleanup.policy=compact,delete")
    on_broker("topics", "create", "again-a", "-p", 3, "-r", 1, *settings)
    on_broker("topics", "create", "again-b", "-p", 1, "-r", 1)
    ran = on_broker("topics", "delete", "--match", "again-*", "-y", "--undo-dir", tmp_path)
    [told] = [line for line in ran.err.splitlines() if line.startswith("saved")]
    file = next(iter(tmp_path.glob("topics-*.yaml")))
    assert (
        told
        == f"saved what makes topics again, without their records: kctl -b {broker.bootstrap} topics create -f {file}"
    )
    assert on_broker("topics", "create", "-f", file).code == Exit.DONE
    made = json.loads(on_broker("topics", "describe", "again-a", "again-b", "-o", "json").out)["items"]
    own = [{c["name"]: c["value"] for c in topic["configs"] if c["source"] == "topic"} for topic in made]
    assert own == [{"cleanup.policy": "compact,delete", "retention.ms": "604800000"}, {}]
    assert [topic["partition_count"] for topic in made] == [3, 1]


def test_offsets_of_groups_are_saved_before_topics_are_deleted(
    on_broker: Kctl, broker: KafkadProcess, tmp_path: Path
) -> None:
    for name in ("noted", "kept-noted"):
        make_topic(broker.port, name, 10, 10)
    for group, partitions in (("noting", 2), ("noting-too", 1)):
        commit(broker.port, group, {TopicPartition("noted", p): 7 - p for p in range(partitions)})
    commit(broker.port, "noting", {TopicPartition("kept-noted", 0): 3})
    ran = on_broker("topics", "delete", "noted", "-y", "--undo-dir", tmp_path)
    [file] = tmp_path.glob("groups-*.csv")
    assert file.read_text() == "noting,noted,0,7\nnoting,noted,1,6\nnoting-too,noted,0,7\n"
    back = f"groups reset-offsets noting noting-too --from-file {file}"
    assert f"saved offsets of 2 groups, for when the records are back: kctl -b {broker.bootstrap} {back}\n" in ran.err
    make_topic(broker.port, "noted", 10, 10)
    assert on_broker(*back.split(), "-y", "--undo-dir", tmp_path).code == Exit.DONE
    exported = on_broker("groups", "export", "noting", "noting-too").out.splitlines()
    assert exported == ["noting,kept-noted,0,3", *file.read_text().splitlines()]


def test_a_topic_of_which_nothing_can_be_saved_goes_only_where_nobody_asked_for_that(
    on_broker: Kctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_broker("topics", "create", "unsaved", "-p", 1, "-r", 1)
    ran = on_broker("topics", "delete", "unsaved", "-y", "--undo-dir", tmp_path / "nowhere")
    assert (ran.code, "/nowhere/unsaved-" in ran.err, "nothing was deleted" in ran.err) == (Exit.FAILED, True, True)
    assert names(on_broker, "unsaved") == ["unsaved"]
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    ran = on_broker("topics", "delete", "unsaved", "-y")
    assert (ran.code, "what makes topics again is not saved: " in ran.err) == (Exit.DONE, True), ran.err


def test_of_two_files_the_one_that_cannot_be_saved_is_named(
    on_broker: Kctl, broker: KafkadProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(directory: Path, before: object) -> NoReturn:
        raise KctlError("groups.csv: No space left on device")

    monkeypatch.setattr(undo_files, "save_offsets", refuse)
    monkeypatch.chdir(tmp_path)
    make_topic(broker.port, "half-saved", 10)
    commit(broker.port, "half-saving", {TopicPartition("half-saved", 0): 3})
    told = "offsets of group half-saving are not saved: groups.csv: No space left on device\n"
    ran = on_broker("topics", "delete", "half-saved", "-y", "--undo-dir", tmp_path)
    assert (ran.code, told in ran.err, "nothing was deleted" in ran.err) == (Exit.FAILED, True, True), ran.err
    ran = on_broker("topics", "delete", "half-saved", "-y")
    assert (ran.code, "saved what makes topics again" in ran.err) == (Exit.DONE, True)
    assert told in ran.err and "nothing" not in ran.err


def test_a_topic_goes_without_offsets_that_cannot_be_read_only_where_nobody_asked_for_them(
    on_broker: Kctl, broker: KafkadProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(session: Session, groups: Iterable[str]) -> dict[str, KctlError]:
        return {group: KctlError("the coordinator is down") for group in groups}

    monkeypatch.setattr(undo_files, "committed", down)
    monkeypatch.chdir(tmp_path)
    make_topic(broker.port, "unread", 10)
    commit(broker.port, "unread-group", {TopicPartition("unread", 0): 3})
    told = "offsets of group unread-group are not saved: the coordinator is down\n"
    ran = on_broker("topics", "delete", "unread", "-y", "--undo-dir", tmp_path)
    assert (ran.code, told in ran.err, "nothing was deleted" in ran.err) == (Exit.FAILED, True, True), ran.err
    assert names(on_broker, "unread") == ["unread"]
    ran = on_broker("topics", "delete", "unread", "-y")
    assert (ran.code, told in ran.err) == (Exit.DONE, True), ran.err


@pytest.mark.parametrize("silent", ["some brokers", "a coordinator"])
def test_a_topic_goes_without_knowing_who_reads_it_only_where_nobody_asked_for_their_offsets(
    on_broker: Kctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent: str
) -> None:
    def refuse(session: Session, chosen: ChosenGroups) -> NoReturn:
        raise KctlError("it is down", exit_code=Exit.UNREACHABLE)

    def listed(session: Session) -> tuple[dict[str, Listed], list[KctlError]]:
        return {}, [KctlError("it is down", exit_code=Exit.UNREACHABLE)]

    if silent == "a coordinator":
        monkeypatch.setattr(readers, "lags_of_groups", refuse)
    else:
        monkeypatch.setattr(readers, "listed_groups", listed)
    monkeypatch.chdir(tmp_path)
    on_broker("topics", "create", "unread-by", "-p", 1, "-r", 1)
    told = "whether groups read them is not known: it is down\n"
    ran = on_broker("topics", "delete", "unread-by", "-y", "--undo-dir", tmp_path)
    assert (ran.code, told in ran.err, "nothing was deleted" in ran.err) == (Exit.UNREACHABLE, True, True), ran.err
    assert names(on_broker, "unread-by") == ["unread-by"]
    ran = on_broker("topics", "delete", "unread-by", "-y")
    assert (ran.code, ran.err.count(told)) == (Exit.DONE, 1), ran.err


def test_a_topic_whose_settings_may_not_be_seen_is_saved_without_them_and_that_is_said(
    on_broker: Kctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hide(session: Session, topics: Iterable[str], keys: object) -> of_topics.TopicSettings:
        settings, errors = of_topics.topic_settings(session, topics)
        settings.pop("unseen-a")
        return of_topics.TopicSettings(settings, [*errors, KctlError("not authorized")])

    for name in ("unseen-a", "unseen-b"):
        on_broker("topics", "create", name, "-p", 1, "-r", 1, "--config", "retention.ms=7d")
    monkeypatch.setattr(details, "topic_settings", hide)
    ran = on_broker("topics", "delete", "--match", "unseen-*", "-y", "--undo-dir", tmp_path)
    assert ran.code == Exit.DONE
    assert "saved what makes topics again, without their records and the settings of topic unseen-a: " in ran.err
    file = next(iter(tmp_path.glob("*.yaml")))
    text = file.read_text()
    assert text.startswith("# without its settings, which could not be seen\n- name: unseen-a\n")
    assert (text.count("#"), text.count("retention.ms")) == (1, 1)
    assert on_broker("topics", "create", "-f", file).code == Exit.DONE


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
