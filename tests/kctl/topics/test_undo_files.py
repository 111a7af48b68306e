"""What is saved before topics are deleted, and what becomes of the topics where it cannot be."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

import pytest

from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition
from kctl.configs import of_topics
from kctl.errors import Exit, KctlError, failure
from kctl.groups import group_lag
from kctl.groups.group import Listed
from kctl.groups.group_lag import ChosenGroups
from kctl.partitions.requests import Active
from kctl.reach.session import Session
from kctl.topics import details, readers, undo_files
from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl
from tests.kctl.groups.reading import commit, make_topic


def is_there(kctl: Kctl, topic: str) -> bool:
    return kctl("topics", "describe", topic).code == Exit.DONE


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
    assert (ran.code, "/nowhere/unsaved-" in ran.err, "nothing was changed" in ran.err) == (Exit.FAILED, True, True)
    assert is_there(on_broker, "unsaved")
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
    assert (ran.code, told in ran.err, "nothing was changed" in ran.err) == (Exit.FAILED, True, True), ran.err
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
    assert (ran.code, told in ran.err, "nothing was changed" in ran.err) == (Exit.FAILED, True, True), ran.err
    assert is_there(on_broker, "unread")
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
        monkeypatch.setattr(group_lag, "listed_groups", listed)
    monkeypatch.chdir(tmp_path)
    on_broker("topics", "create", "unread-by", "-p", 1, "-r", 1)
    told = "whether groups read them is not known: it is down\n"
    ran = on_broker("topics", "delete", "unread-by", "-y", "--undo-dir", tmp_path)
    assert (ran.code, told in ran.err, "nothing was changed" in ran.err) == (Exit.UNREACHABLE, True, True), ran.err
    assert is_there(on_broker, "unread-by")
    ran = on_broker("topics", "delete", "unread-by", "-y")
    assert (ran.code, ran.err.count(told)) == (Exit.DONE, 1), ran.err


def test_a_topic_goes_without_settings_that_may_not_be_seen_only_where_nobody_asked_for_them(
    on_broker: Kctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hide(session: Session, topics: Iterable[str], keys: object) -> of_topics.TopicSettings:
        settings, errors = of_topics.topic_settings(session, topics)
        settings.pop("unseen-a", None)
        return of_topics.TopicSettings(settings, [*errors, failure(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "hidden")])

    for name in ("unseen-a", "unseen-b"):
        on_broker("topics", "create", name, "-p", 1, "-r", 1, "--config", "retention.ms=7d")
    monkeypatch.setattr(details, "topic_settings", hide)
    monkeypatch.chdir(tmp_path)
    command = ("topics", "delete", "--match", "unseen-*", "-y")
    told = "settings of topic unseen-a are not saved: hidden (TOPIC_AUTHORIZATION_FAILED)\n"
    ran = on_broker(*command, "--undo-dir", tmp_path)
    assert (ran.code, f"error: {told}" in ran.err) == (Exit.UNAUTHORIZED, True), ran.err
    assert is_there(on_broker, "unseen-a") and is_there(on_broker, "unseen-b")
    ran = on_broker(*command)
    assert (ran.code, told in ran.err, "saved what makes topics again" in ran.err) == (Exit.DONE, True, True)
    file = max(tmp_path.glob("*.yaml"))
    text = file.read_text()
    assert text.startswith("# without its settings, which could not be seen\n- name: unseen-a\n")
    assert (text.count("#"), text.count("retention.ms")) == (1, 1)
    assert on_broker("topics", "create", "-f", file).code == Exit.DONE


def test_all_that_is_not_saved_is_told_and_what_was_wrong_besides(
    on_broker: Kctl, broker: KafkadProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(session: Session, groups: Iterable[str]) -> dict[str, KctlError]:
        return {group: failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, "its coordinator") for group in groups}

    monkeypatch.setattr(undo_files, "committed", down)
    make_topic(broker.port, "full", 10)
    commit(broker.port, "full-group", {TopicPartition("full", 0): 3})
    command = ("topics", "delete", "full", "no-such-topic", "-y", "-o", "json")
    ran = on_broker(*command, "--undo-dir", tmp_path / "nowhere")
    answer = json.loads(ran.out)
    whole = [error["error"] for error in answer["errors"]]
    assert (answer["items"], [what.partition(":")[0] for what in whole]) == (
        [],
        [
            'topic "no-such-topic" does not exist',
            "what makes topics again is not saved",
            "offsets of group full-group are not saved",
        ],
    )
    assert [error["code"] for error in answer["errors"]][1:] == [None, "COORDINATOR_NOT_AVAILABLE"]
    assert answer["errors"][2]["hints"]
    assert (ran.code, is_there(on_broker, "full")) == (Exit.FAILED, True)


def test_a_topic_that_a_share_group_reads_goes_only_where_nobody_asked_for_its_positions(
    on_broker: Kctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def share_group(session: Session, topics: Iterable[str]) -> readers.Reading:
        return readers.Reading({"shared": [readers.Reader("sharing", "Stable", "share", 0, 2)]}, [], [])

    on_broker("topics", "create", "shared", "-p", 1, "-r", 1)
    monkeypatch.setattr("kctl.topics.delete.reading_of", share_group)
    monkeypatch.chdir(tmp_path)
    told = "positions of share group sharing are not saved: kctl cannot set them again\n"
    ran = on_broker("topics", "delete", "shared", "-y", "--undo-dir", tmp_path)
    assert (ran.code, f"error: {told}" in ran.err, is_there(on_broker, "shared")) == (Exit.FAILED, True, True)
    ran = on_broker("topics", "delete", "shared", "-y")
    assert (ran.code, told in ran.err) == (Exit.DONE, True), ran.err


THROTTLED = "leader.replication.throttled.replicas"


def test_a_topic_on_the_move_is_saved_without_what_the_move_does(
    on_broker: Kctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def moves(session: Session, partitions: object) -> dict[TopicPartition, Active]:
        return {TopicPartition("on-the-move", 0): Active((1,), (), ())}

    made = on_broker("topics", "create", "on-the-move", "-p", 1, "-r", 1, "--config", f"{THROTTLED}=0:1")
    assert made.code == Exit.DONE, made.err
    monkeypatch.setattr("kctl.partitions.requests.active_moves", moves)
    ran = on_broker("topics", "delete", "on-the-move", "-y", "--undo-dir", tmp_path)
    assert "moves are under way, for whose end a deletion may wait: on-the-move\n" in ran.err
    [file] = tmp_path.glob("*.yaml")
    assert file.read_text() == "- name: on-the-move\n  partitions: 1\n  replication: 1\n"


def test_a_clone_is_not_throttled_like_its_model(on_broker: Kctl, tmp_path: Path) -> None:
    settings = ("--config", f"{THROTTLED}=*", "--config", "retention.ms=7d")
    on_broker("topics", "create", "slowed", "-p", 1, "-r", 1, *settings)
    ran = on_broker("topics", "clone", "slowed", "slowed-too", "-o", "json")
    assert ran.code == Exit.DONE, ran.err
    [made] = json.loads(on_broker("topics", "describe", "slowed-too", "-o", "json").out)["items"]
    assert [config["name"] for config in made["configs"] if config["source"] == "topic"] == ["retention.ms"]
    gone = on_broker("topics", "delete", "slowed", "-y", "--undo-dir", tmp_path)
    assert gone.code == Exit.DONE, gone.err  # its throttle would be a left-over one to others
