"""Changes of offsets and groups, on kafkad."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition
from kctl.errors import Exit, KctlError, failure
from kctl.groups import committed, offset_changes
from kctl.groups.offset_changes import Outcome, needed_undo, outcome
from kctl.reach.session import open_session
from kctl.settings import Settings
from tests.broker import KafkadProcess
from tests.clients.asker import STAMP_MS
from tests.clients.members import Member, group_of
from tests.kctl.conftest import Kctl, Ran
from tests.kctl.groups.reading import commit, make_topic, reading


@pytest.fixture
def port(broker: KafkadProcess) -> int:
    return broker.port


@pytest.fixture
def groups(on_broker: Kctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kctl:
    """`kctl groups`, where undo files go to a directory of their own."""
    directory = tmp_path / "here"
    directory.mkdir()
    monkeypatch.chdir(directory)
    return lambda *arguments: on_broker("groups", *arguments)


def exported(groups: Kctl, group: str) -> str:
    return groups("export", group).out


def undone(groups: Kctl, ran: Ran) -> str:
    """Runs the command that a change printed as its undoing."""
    (line,) = [line for line in ran.err.splitlines() if line.startswith("undo: ")]
    for command in line.removeprefix("undo: ").split("; "):
        there, _, words = command.partition(" groups ")
        assert re.fullmatch(r"kctl -b \S+:\d+", there)
        assert groups(*words.split(), "-y").code == Exit.DONE
    return line


TARGETS = [
    (("--to", "earliest"), [0, 0]),
    (("--to-earliest",), [0, 0]),
    (("--to", "latest"), [30, 20]),
    (("--to-latest",), [30, 20]),
    (("--to", "current"), [12, 20]),
    (("--to-current",), [12, 20]),
    (("--to", "7"), [7, 7]),
    (("--to-offset", "25"), [25, 20]),
    (("--to-offset", "-1"), [0, 0]),
    (("--to", "-3"), [9, 17]),
    (("--shift-by", "-15"), [0, 5]),
    (("--to", "+10"), [22, 20]),
    (("--to", f"@{STAMP_MS + 15}"), [15, 15]),
    (("--to-datetime", "2023-11-14T22:13:20.025"), [25, 20]),
    (("--by-duration", "P20000D"), [0, 0]),
    (("--by-duration", "PT1S"), [30, 20]),
]


@pytest.mark.parametrize(("options", "offsets"), TARGETS)
def test_resets_to(groups: Kctl, port: int, options: tuple[str, ...], offsets: list[int]) -> None:
    name = re.sub(r"[^a-z0-9]+", "-", f"to{''.join(options)}".lower()).strip("-")
    make_topic(port, name, 30, 20)
    commit(port, name, {TopicPartition(name, 0): 12})
    commit(port, name, {TopicPartition(name, 1): 20})
    planned = groups("reset-offsets", name, "--all-topics", *options, "--export")
    assert (planned.code, planned.err) == (Exit.DONE, "")
    assert planned.out == "".join(f"{name},{at},{offset}\n" for at, offset in enumerate(offsets))
    ran = groups("reset-offsets", name, "--topic", name, *options, "--execute")
    assert ran.code == Exit.DONE, ran
    assert "verified: 2 offsets read back" in ran.err
    assert exported(groups, name) == planned.out
    undone(groups, ran)
    assert exported(groups, name) == f"{name},0,12\n{name},1,20\n"


@pytest.mark.parametrize(
    ("words", "read_back", "told"),
    [
        (
            ("reset-offsets", "unread-1", "--topic", "unread-1", "--to", "5"),
            "offset_plan.verify",
            "1 of 1 groups are done",
        ),
        (("delete", "unread-2"), "delete._still_there", "it may be done in part"),
        (
            ("delete-offsets", "unread-3", "--topic", "unread-3"),
            "delete_offsets._still_there",
            "it may be done in part",
        ),
    ],
    ids=["reset-offsets", "delete", "delete-offsets"],
)
def test_the_way_back_is_told_also_when_what_was_done_cannot_be_read_back(
    groups: Kctl, port: int, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], read_back: str, told: str
) -> None:
    name = words[1]
    make_topic(port, name, 30)
    commit(port, name, {TopicPartition(name, 0): 12})

    def gone(*arguments: object) -> list[KctlError]:
        raise KctlError("the broker went away", exit_code=Exit.UNREACHABLE)

    monkeypatch.setattr(f"kctl.groups.{read_back}", gone)
    ran = groups(*words, "-y")
    assert ran.code == Exit.UNREACHABLE
    assert f"{told}; undo: kctl -b 127.0.0.1:{port} groups reset-offsets {name} --from-file " in ran.err


@pytest.mark.parametrize(
    "words",
    [
        ("reset-offsets", "unsaved-1", "--topic", "unsaved-1", "--to", "5"),
        ("delete", "unsaved-2"),
        ("delete-offsets", "unsaved-3", "--topic", "unsaved-3"),
    ],
    ids=["reset-offsets", "delete", "delete-offsets"],
)
def test_without_a_way_back_nothing_is_changed(groups: Kctl, port: int, words: tuple[str, ...], tmp_path: Path) -> None:
    name = words[1]
    make_topic(port, name, 30)
    commit(port, name, {TopicPartition(name, 0): 12})
    ran = groups(*words, "-y", "--undo-dir", tmp_path / "nowhere")
    assert ran.code == Exit.FAILED
    said = r"error: \S*/nowhere/unsaved-\S*\.csv cannot be written: No such file or directory\n *nothing was changed"
    assert re.search(said, ran.err) and "--undo-dir DIR" in ran.err
    assert "partly done" not in ran.err
    assert exported(groups, name) == f"{name},0,12\n"


def test_what_breaks_off_a_change_hides_nothing_else_that_is_wrong(groups: Kctl, port: int, tmp_path: Path) -> None:
    make_topic(port, "unsaved-4", 30)
    commit(port, "unsaved-4", {TopicPartition("unsaved-4", 0): 12})
    words = ("delete", "unsaved-4", "no-such-group", "-y", "--undo-dir", tmp_path / "nowhere")
    ran = groups(*words, "-o", "json")
    told = [error["error"] for error in json.loads(ran.out)["errors"]]
    assert ["cannot be written" in error or "no-such-group" in error for error in told] == [True, True], told
    ran = groups(*words)
    assert (ran.err.count("no-such-group"), ran.err.count("cannot be written")) == (1, 1), ran.err


def test_no_way_back_is_told_where_there_is_none(groups: Kctl, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with group_of(port, "uncommitted", "a") as (member,):
        member.leave()

    def gone(*arguments: object) -> list[KctlError]:
        raise KctlError("the broker went away", exit_code=Exit.UNREACHABLE)

    monkeypatch.setattr("kctl.groups.delete._still_there", gone)
    ran = groups("delete", "uncommitted", "-y")
    assert ran.code == Exit.UNREACHABLE
    assert "it may be done in part\n" in ran.err
    assert "undo" not in ran.err


def test_shows_what_it_will_do(groups: Kctl, port: int, approved: Callable[[str, str], None]) -> None:
    make_topic(port, "previewed", 30, 20, 0)
    commit(port, "previewing", {TopicPartition("previewed", 0): 12, TopicPartition("previewed", 1): 20})
    ran = groups("reset-offsets", "previewing", "--topic", "previewed", "--to", "15", "--dry-run", "--utc")
    assert ran.code == Exit.DONE
    assert ran.err.splitlines() == ["previewing -> 15", "dry run: nothing was changed"]
    approved("groups-reset-offsets", ran.out)
    assert exported(groups, "previewing") == "previewed,0,12\npreviewed,1,20\n"
    assert list(Path().iterdir()) == []


def test_nothing_happens_unconfirmed(groups: Kctl, port: int) -> None:
    make_topic(port, "unconfirmed", 3)
    commit(port, "unconfirmed", {TopicPartition("unconfirmed", 0): 1})
    for command in (
        ("reset-offsets", "unconfirmed", "--all-topics", "--to", "earliest"),
        ("delete-offsets", "unconfirmed", "--all-topics"),
        ("delete", "unconfirmed"),
        ("clone", "unconfirmed", "unconfirmed-too"),
    ):
        assert groups(*command).code == Exit.REFUSED, command
        assert groups(*command, "--dry-run").code == Exit.DONE, command
    assert exported(groups, "unconfirmed") == "unconfirmed,0,1\n"
    assert groups("list", "unconfirmed-too").code == Exit.NOT_FOUND


def test_an_active_group_is_refused_and_its_members_named(groups: Kctl, port: int) -> None:
    make_topic(port, "busy", 3)
    with reading(port, "busy", "busy", {"first": [0], "second": []}):
        for command in (
            ("reset-offsets", "busy", "--topic", "busy", "--to", "earliest", "-y"),
            ("reset-offsets", "busy", "--topic", "busy", "--to", "earliest", "--dry-run"),
            ("delete", "busy", "-y"),
            ("clone", "any", "busy", "-y"),
        ):
            ran = groups(*command)
            assert ran.code == Exit.REFUSED, ran
            assert 'group "busy" is Stable with 2 members' in ran.err
            assert "(NON_EMPTY_GROUP)" in ran.err
            assert "stop: " in ran.err
            assert "first@127.0.0.1" in ran.err
            assert "second@127.0.0.1" in ran.err
            bound = "it can be deleted" if command[0] == "delete" else "its offsets change"
            assert f"with 2 members; {bound} only when it is empty" in ran.err
    assert groups("export", "busy").code == Exit.NOT_FOUND


def test_waits_until_it_is_empty(groups: Kctl, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    make_topic(port, "waited", 3)
    with reading(port, "waited", "waited", {"only": [0]}) as (member,):
        monkeypatch.setattr(offset_changes, "pause", lambda _: member.leave())
        ran = groups("reset-offsets", "waited", "--topic", "waited", "--to", "2", "-y", "--wait")
        assert (ran.code, exported(groups, "waited")) == (Exit.DONE, "waited,0,2\n")
        assert "waiting until group waited is empty: only@127.0.0.1" in ran.err
        member.id = ""
        member.join()


def test_a_group_that_becomes_active_before_it_is_confirmed(
    groups: Kctl, port: int, meanwhile: list[Callable[[], object]]
) -> None:
    make_topic(port, "sudden", 3)
    commit(port, "sudden", {TopicPartition("sudden", 0): 1})
    member = Member(port, "sudden", "sudden", topic="sudden")
    meanwhile.append(member.join)
    ran = groups("reset-offsets", "sudden", "--all-topics", "--to", "latest", "-y")
    assert ran.code == Exit.REFUSED
    assert "CompletingRebalance with 1 member" in ran.err
    assert exported(groups, "sudden") == "sudden,0,1\n"
    member.leave()
    member.close()


def test_offsets_that_change_before_it_is_confirmed(
    groups: Kctl, port: int, meanwhile: list[Callable[[], object]]
) -> None:
    make_topic(port, "moving", 5)
    commit(port, "moving", {TopicPartition("moving", 0): 1})
    meanwhile.append(lambda: commit(port, "moving", {TopicPartition("moving", 0): 2}))
    ran = groups("reset-offsets", "moving", "--all-topics", "--to", "latest", "-y")
    assert ran.code == Exit.REFUSED
    assert "have changed since they were shown" in ran.err
    assert exported(groups, "moving") == "moving,0,2\n"


def test_from_a_file_and_from_standard_input(groups: Kctl, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    make_topic(port, "filed", 9, 9)
    Path("two.csv").write_text("one-group,filed,0,3\nother-group,filed,0,4\nother-group,filed,1,99\n")
    ran = groups("reset-offsets", "one-group", "other-group", "--from-file", "two.csv", "-y", "-o", "json")
    assert ran.code == Exit.DONE
    rows = [(row["group"], row["partition"], row["new"], row["note"]) for row in json.loads(ran.out)["items"]]
    assert rows == [("one-group", 0, 3, None), ("other-group", 0, 4, None), ("other-group", 1, 9, "clamped to the end")]
    monkeypatch.setattr("sys.stdin", io.StringIO("\ufefffiled,0,5\n"))
    assert groups("reset-offsets", "one-group", "--from-file", "-", "-y").code == Exit.DONE
    whole = groups("export", "one-group", "other-group")
    assert whole.out == "one-group,filed,0,5\nother-group,filed,0,4\nother-group,filed,1,9\n"


def test_offsets_of_several_groups_say_whose_they_are(groups: Kctl, port: int) -> None:
    """Also where only one of them has any: read back without its name they would be for any group."""
    make_topic(port, "owned", 9)
    commit(port, "owner", {TopicPartition("owned", 0): 3})
    of_owner = "owner,owned,0,3\n"
    assert exported(groups, "owner") == "owned,0,3\n"
    several = groups("export", "owner", "owns-nothing")
    assert (several.code, several.out) == (Exit.NOT_FOUND, of_owner)
    assert groups("export", "--match", "owner*").out == of_owner
    reset = ("reset-offsets", "--topic", "owned", "--to", "3", "--export")
    assert groups(*reset, "owner").out == "owned,0,3\n"
    assert groups(*reset, "--match", "owner*").out == of_owner


def test_groups_that_are_not_reset_are_told(groups: Kctl, port: int) -> None:
    make_topic(port, "two-to-reset", 9)
    commit(port, "some-yes", {TopicPartition("two-to-reset", 0): 3})
    Path("one.csv").write_text("some-yes,two-to-reset,0,4\n")
    ran = groups("reset-offsets", "some-yes", "some-no", "--from-file", "one.csv", "-y")
    assert (ran.code, exported(groups, "some-yes")) == (Exit.NOT_FOUND, "two-to-reset,0,4\n"), "the other one is reset"
    assert 'error: one.csv has no offsets of group "some-no"\n' in ran.err
    ran = groups("reset-offsets", "some-yes", "some-yess", "--all-topics", "--to", "5", "-y")
    assert (ran.code, exported(groups, "some-yes")) == (Exit.NOT_FOUND, "two-to-reset,0,5\n")
    assert 'group "some-yess" does not exist (GROUP_ID_NOT_FOUND)\n       did you mean "some-yes"?' in ran.err
    with group_of(port, "some-uncommitted", "a") as (member,):
        member.leave()
    ran = groups("reset-offsets", "--match", "some-*", "--all-topics", "--to", "6", "-y")
    assert (ran.code, exported(groups, "some-yes")) == (Exit.DONE, "two-to-reset,0,6\n")
    assert "there is nothing to reset in some-uncommitted\n" in ran.err
    assert groups("reset-offsets", "some-uncommitted", "--all-topics", "--to", "6", "-y").code == Exit.NOT_FOUND


def test_partitions_without_an_offset_are_told(groups: Kctl, port: int) -> None:
    make_topic(port, "partly-committed", 9, 9)
    make_topic(port, "not-committed", 9)
    commit(port, "part", {TopicPartition("partly-committed", 0): 3})
    missing = 'error: group "part" has committed nothing of partly-committed:1,7-8\n'
    scope = ("--topic", "partly-committed:0-1,7,8")
    ran = groups("clone", "part", "part-copy", *scope, "--topic", "not-committed", "-y")
    assert (ran.code, exported(groups, "part-copy")) == (Exit.NOT_FOUND, "partly-committed,0,3\n")
    assert missing in ran.err and 'error: group "part" has committed nothing of topic "not-committed"\n' in ran.err
    ran = groups("delete-offsets", "part", *scope, "-y")
    assert (ran.code, missing in ran.err, exported(groups, "part")) == (Exit.NOT_FOUND, True, "")
    assert groups("clone", "part-copy", "part", "--topic", "partly-committed:1", "-y").code == Exit.NOT_FOUND


def test_to_where_another_group_stands(groups: Kctl, port: int) -> None:
    make_topic(port, "stand", 9, 9)
    commit(port, "stand-model", {TopicPartition("stand", 0): 3, TopicPartition("stand", 1): 4})
    assert groups("reset-offsets", "stand-1", "--to-group", "stand-model", "-y").code == Exit.DONE
    assert exported(groups, "stand-1") == "stand,0,3\nstand,1,4\n"
    assert groups("reset-offsets", "stand-2", "--to-group", "stand-model", "--topic", "stand:1", "-y").code == 0
    assert exported(groups, "stand-2") == "stand,1,4\n"
    missing = groups("reset-offsets", "stand-2", "--to-group", "stand-modell", "-y")
    assert (missing.code, 'did you mean "stand-model"' in missing.err) == (Exit.NOT_FOUND, True)


def test_clones(groups: Kctl, port: int) -> None:
    make_topic(port, "cloned-a", 9)
    make_topic(port, "cloned-b", 9)
    commit(port, "clone-from", {TopicPartition("cloned-a", 0): 3, TopicPartition("cloned-b", 0): 4})
    commit(port, "clone-to", {TopicPartition("cloned-b", 0): 9})
    ran = groups("clone", "clone-from", "clone-to", "-y")
    assert ran.code == Exit.DONE
    assert exported(groups, "clone-to") == "cloned-a,0,3\ncloned-b,0,4\n"
    undone(groups, ran)
    assert exported(groups, "clone-to") == "cloned-b,0,9\n"
    assert groups("clone", "clone-from", "clone-some", "--topic", "cloned-b", "-y").code == Exit.DONE
    assert exported(groups, "clone-some") == "cloned-b,0,4\n"
    assert groups("clone", "clone-nobody", "clone-to", "-y").code == Exit.NOT_FOUND


def test_deletes_and_brings_back(groups: Kctl, port: int) -> None:
    make_topic(port, "to-forget", 9, 9)
    commit(port, "forgotten", {TopicPartition("to-forget", 0): 3, TopicPartition("to-forget", 1): 4})
    before = exported(groups, "forgotten")
    some = groups("delete-offsets", "forgotten", "--topic", "to-forget:1", "-y")
    assert (some.code, exported(groups, "forgotten")) == (Exit.DONE, "to-forget,0,3\n")
    undone(groups, some)
    ran = groups("delete", "forgotten", "forgotton", "-y")
    assert ran.code == Exit.NOT_FOUND  # one of the two
    assert groups("list", "forgotten").code == Exit.NOT_FOUND
    undone(groups, ran)
    assert exported(groups, "forgotten") == before


def test_the_way_back_names_a_group_that_no_terminal_could_show(groups: Kctl, port: int) -> None:
    name = "evil\x1b[2J\n'gone'"
    make_topic(port, "of-evil", 1)
    ran = groups("reset-offsets", name, "--topic", "of-evil", "--to", "earliest", "-y")
    (undo,) = [line for line in ran.err.splitlines() if line.startswith("undo: ")]
    assert f"of-evil\n{name}" not in ran.out and "\x1b" not in ran.out + ran.err
    assert undo.endswith(r"groups delete $'evil\x1b[2J\x0a\x27gone\x27'")
    lines = groups("describe", name).out.splitlines()
    assert lines[0].startswith(r"evil\x1b[2J\n'gone'")


def test_offsets_in_use_are_not_deleted(groups: Kctl, port: int, tmp_path: Path) -> None:
    make_topic(port, "subscribed", 9)
    commit(port, "subscriber", {TopicPartition("subscribed", 0): 3})
    with reading(port, "subscriber", "subscribed", {"only": [0]}):
        saved = tmp_path / "saved"
        saved.mkdir()
        ran = groups("delete-offsets", "subscriber", "--topic", "subscribed", "-y", "--undo-dir", saved)
        assert ran.code == Exit.REFUSED
        assert "(GROUP_SUBSCRIBED_TO_TOPIC)" in ran.err
        assert ("undo:" in ran.err, list(saved.iterdir())) == (False, [])
    assert exported(groups, "subscriber") == "subscribed,0,3\n"


def in_doubt() -> KctlError:
    error = failure(ErrorCode.UNKNOWN_MEMBER_ID, "g")
    error.in_doubt = True
    return error


REFUSED = failure(ErrorCode.NON_EMPTY_GROUP, "g")


@pytest.mark.parametrize(
    ("errors", "asked", "nothing"),
    [
        ([], 1, False),
        ([REFUSED], 1, True),
        ([REFUSED], 2, False),
        ([REFUSED, REFUSED], 2, True),
        ([in_doubt()], 1, False),
        ([failure(ErrorCode.REQUEST_TIMED_OUT, "g")], 1, False),
    ],
)
def test_there_is_a_way_back_unless_nothing_was_done_for_sure(
    tmp_path: Path, errors: list[KctlError], asked: int, nothing: bool
) -> None:
    file = tmp_path / "offsets.csv"
    file.touch()
    undo = needed_undo("groups reset-offsets", file, [outcome(errors, asked)])
    assert (undo, file.exists()) == (("", False) if nothing else ("groups reset-offsets", True))


@pytest.mark.parametrize("nothing", [True, False])
def test_a_reset_that_was_refused_tells_no_way_back(
    groups: Kctl, port: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, nothing: bool
) -> None:
    name = f"refused-{nothing}".lower()
    make_topic(port, name, 9)
    commit(port, name, {TopicPartition(name, 0): 3})
    monkeypatch.setattr("kctl.groups.offset_plan.commit_offsets", lambda *asked: Outcome([REFUSED], nothing))
    ran = groups("reset-offsets", name, "--topic", name, "--to", "5", "-y", "--undo-dir", tmp_path)
    assert (ran.code, "undo:" not in ran.err, not list(tmp_path.glob("*.csv"))) == (Exit.REFUSED, nothing, nothing)


def test_offsets_whose_commit_was_not_answered_are_read_back(
    on_broker: Kctl, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator has carried it out, and somebody has joined before it is repeated."""
    make_topic(port, "doubted", 5)
    commit(port, "doubted", {TopicPartition("doubted", 0): 3})
    settings = Settings()
    settings.bootstrap = f"127.0.0.1:{port}"
    session = open_session(settings)
    ask = session.ask_coordinators
    refused = failure(ErrorCode.UNKNOWN_MEMBER_ID, "group")
    refused.in_doubt = True

    def answers(names: list[str], build: Any, read: Any) -> Any:
        return ask(names, build, read) if build is committed._request else {"doubted": refused}

    monkeypatch.setattr(session, "ask_coordinators", answers)
    assert offset_changes.commit_offsets(session, "doubted", {TopicPartition("doubted", 0): 3}).errors == []
    [error], nothing = offset_changes.commit_offsets(session, "doubted", {TopicPartition("doubted", 0): 4})
    assert not nothing
    assert "its offsets may have been changed" in error.what
    refused.in_doubt = False
    [error], nothing = offset_changes.commit_offsets(session, "doubted", {TopicPartition("doubted", 0): 3})
    assert nothing
    assert "none of its offsets were changed" in error.what
    session.close()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("reset-offsets g --to earliest", Exit.USAGE, "no topics are selected"),
        ("reset-offsets g --all-topics", Exit.USAGE, "no target is given for the offsets"),
        ("reset-offsets g --all-topics --to 1 --to-latest", Exit.USAGE, "use only one of"),
        (
            "reset-offsets g --all-topics --topic t --to 1",
            Exit.USAGE,
            "--all-topics and topic names exclude each other",
        ),
        ("reset-offsets --all-topics --to 1", Exit.USAGE, "no group is named"),
        ("reset-offsets g --all-topics --to 1 -y", Exit.NOT_FOUND, 'group "g" does not exist'),
        ("reset-offsets g --topic no-such-topic --to 1 -y", Exit.NOT_FOUND, 'topic "no-such-topic" does not exist'),
        ("reset-offsets g --from-file nowhere.csv -y", Exit.NOT_FOUND, "nowhere.csv: No such file"),
        ("reset-offsets g --topic t:x --to 1", Exit.USAGE, '"t:x" is not a topic with partitions'),
        ("reset-offsets g --topic t --to-offset latest", Exit.USAGE, "'latest' is not a valid integer"),
        ("delete nobody -y", Exit.NOT_FOUND, 'group "nobody" does not exist'),
        ("delete-offsets nobody --all-topics -y", Exit.NOT_FOUND, 'group "nobody" does not exist'),
        ("delete-offsets g", Exit.USAGE, "use only one way to select topics"),
        ("export nobody", Exit.NOT_FOUND, 'group "nobody" does not exist'),
        ("clone g g", Exit.USAGE, "to itself"),
    ],
)
def test_what_cannot_be(groups: Kctl, words: str, code: Exit, said: str) -> None:
    ran = groups(*words.split())
    assert ran.code == code, ran
    assert said in ran.err
