"""Questions that are asked before something is changed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kctl.command import changes
from kctl.command.changes import Change
from kctl.errors import Exit, KctlError
from kctl.reach.access import Access
from kctl.reach.session import Cluster
from kctl.settings import Settings
from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl


class Asked:
    """A session as far as a change needs it, and a person who answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, answer: Any = None, protected: bool = False) -> None:
        self.settings = Settings()
        self.cluster = Cluster("id", 1, {})
        self.access = Access(context="prod", protected=protected)
        self.questions: list[str] = []

        def replies(question: str, **_: Any) -> Any:
            self.questions.append(question)
            return answer[len(self.questions) - 1] if isinstance(answer, list) else answer

        monkeypatch.setattr(changes, "_someone_is_there", lambda: answer is not None)
        monkeypatch.setattr(changes.click, "prompt", replies)  # type: ignore[attr-defined]
        monkeypatch.setattr(changes.click, "confirm", replies)  # type: ignore[attr-defined]

    def confirmed(self, type_this: str = "", only_adds: bool = False) -> bool:
        change = Change(self, (), ())  # type: ignore[arg-type]
        return change.confirmed("Delete 3 topics?", type_this=type_this, only_adds=only_adds)


PROTECTED = 'Delete 3 topics? prod is protected. Type "prod" to go on'


@pytest.mark.parametrize(
    ("yes", "type_this", "protected", "answer", "questions"),
    [
        (False, "", False, True, ["Delete 3 topics?"]),
        (False, "3", False, "3", ['Delete 3 topics? Type "3" to go on']),
        (True, "3", False, True, []),
        (True, "", False, None, []),
        (False, "3", True, ["prod", "3"], [PROTECTED, 'Delete 3 topics? Type "3" to go on']),
        (False, "", True, "prod", [PROTECTED]),
        (True, "3", True, "prod", [PROTECTED]),
    ],
)
def test_what_is_asked(
    monkeypatch: pytest.MonkeyPatch, yes: bool, type_this: str, protected: bool, answer: Any, questions: list[str]
) -> None:
    asked = Asked(monkeypatch, answer=answer, protected=protected)
    asked.settings.yes = yes
    assert asked.confirmed(type_this)
    assert asked.questions == questions


@pytest.mark.parametrize(
    ("yes", "type_this", "protected", "answer"),
    [
        (False, "", False, False),
        (False, "", False, None),
        (False, "3", False, "4"),
        (False, "3", False, None),
        (True, "", True, None),
        (True, "", True, "dev"),
        (True, "3", True, "3"),
        (False, "3", True, ["prod", "prod"]),
    ],
)
def test_what_is_refused(
    monkeypatch: pytest.MonkeyPatch, yes: bool, type_this: str, protected: bool, answer: Any
) -> None:
    asked = Asked(monkeypatch, answer=answer, protected=protected)
    asked.settings.yes = yes
    with pytest.raises(KctlError) as error:
        asked.confirmed(type_this)
    assert error.value.exit_code is Exit.REFUSED


def test_no_part_of_a_change_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch, answer=True)
    asked.settings.limit = 1
    with pytest.raises(KctlError, match="--limit would show a part"):
        asked.confirmed()
    assert asked.questions == []


def test_no_name_forges_a_line_of_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch, answer="3")
    change = Change(asked, (), ())  # type: ignore[arg-type]
    assert change.confirmed("Delete a\x1b[2J\nb?", type_this="3")
    asked.settings.yes = False
    changes.confirm(asked.settings, "Delete a\x1b[2J\nb?")
    assert asked.questions == ['Delete a\\x1b[2J\\nb? Type "3" to go on', "Delete a\\x1b[2J\\nb?"]


def test_what_only_adds_is_not_asked_but_for_a_protected_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch)
    assert asked.confirmed(only_adds=True)
    asked = Asked(monkeypatch, answer="prod", protected=True)
    asked.settings.yes = True
    assert asked.confirmed(only_adds=True)
    assert asked.questions == [PROTECTED]


def test_raw_changes_nothing_that_is_protected(
    on_broker: Kctl, broker: KafkadProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KCTL_PROTECTED", "true")
    ran = on_broker("raw", "CreateTopics", "-y", "{}")
    assert ran.code == Exit.REFUSED
    assert f'"{broker.bootstrap}" must be typed on a terminal' in ran.err
    assert on_broker("raw", "CreateTopics", "-y", "--dry-run", "{}").code == Exit.DONE
    assert on_broker("raw", "Metadata", "{}").code == Exit.DONE


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("kctl.command.changes.confirm", "nothing was changed"),
        ("kctl.topics.delete.save_what_goes", "nothing was changed"),
        (
            "kctl.topics.delete.delete_topics",
            "the change was started and may be complete or partly done: check before you repeat it",
        ),
        ("kctl.reach.session.Session.wait_until", "the change was made, but not verified"),
    ],
)
def test_what_ctrl_c_leaves_behind(
    on_broker: Kctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, told: str
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    on_broker("topics", "create", "ctrl-c", "-p", 1, "-y")
    monkeypatch.setattr(where, interrupted)
    ran = on_broker("topics", "delete", "ctrl-c", "-y", "--undo-dir", tmp_path)
    *saved, last = ran.err.splitlines()
    assert (ran.code, last) == (Exit.INTERRUPTED, f"interrupted: {told}")
    assert len(saved) == len(list(tmp_path.glob("*.yaml"))) == (told != "nothing was changed")


@pytest.mark.parametrize("sends", ["stdout", "both"])
def test_change_is_made_whoever_reads(on_broker: Kctl, broker: KafkadProcess, tmp_path: Path, sends: str) -> None:
    """`kctl … -y | head -1`, where the reader is gone before the first line."""
    topic = f"unread-{sends}"
    on_broker("topics", "create", topic, "-p", 300, "-r", 1)
    command = [sys.executable, "-m", "kctl", "-b", broker.bootstrap, "topics", "delete", topic, "absent", "-y"]
    command += ["--undo-dir", str(tmp_path)]
    reading, writing = os.pipe()
    os.close(reading)
    ran = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=writing, stderr=writing if sends == "both" else None, check=False
    )
    os.close(writing)
    assert ran.returncode == Exit.NOT_FOUND, "the true exit code: one of them is not there"
    assert on_broker("topics", "describe", topic).code == Exit.NOT_FOUND


def test_the_way_back_is_told_where_standard_output_has_no_room(on_broker: Kctl, broker: KafkadProcess) -> None:
    on_broker("topics", "create", "no-room", "-p", 1, "-r", 1)
    command = [sys.executable, "-m", "kctl", "-b", broker.bootstrap, "-o", "json"]
    with open("/dev/full", "w") as full:
        words = ["configs", "set", "topic/no-room", "retention.ms=9d", "-y"]
        ran = subprocess.run([*command, *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ran.returncode == Exit.FAILED
    assert ran.stderr.splitlines()[:2] == [
        f"undo: kctl -b {broker.bootstrap} configs unset topic/no-room retention.ms",
        "error: cannot write: No space left on device; the change was made",
    ]
    assert "777600000" in on_broker("configs", "describe", "topic/no-room").out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["produce", "no-room-either", "-o", "json"], "2 records were delivered"),
        (["raw", "DeleteRecords", "-y"], "DeleteRecords was answered"),
    ],
)
def test_what_was_done_is_told_where_standard_output_has_no_room(
    on_broker: Kctl, broker: KafkadProcess, words: list[str], told: str
) -> None:
    on_broker("topics", "create", "no-room-either", "-p", 1, "-r", 1)
    command = [sys.executable, "-m", "kctl", "-b", broker.bootstrap, *words]
    with open("/dev/full", "w") as full:
        ran = subprocess.run(command, input="a\nb\n", stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ran.returncode == Exit.FAILED
    assert f"error: cannot write: No space left on device; {told}\n" in ran.stderr


def test_the_way_back_is_told_when_reading_back_fails(on_broker: Kctl, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: Any) -> bool:
        raise KctlError("nobody answers", exit_code=Exit.UNREACHABLE)

    on_broker("topics", "create", "no-answer", "-p", 1, "-r", 1)
    monkeypatch.setattr("kctl.reach.session.Session.wait_until", lost)
    ran = on_broker("configs", "set", "topic/no-answer", "retention.ms=9d", "-y")
    assert (ran.code, "configs unset topic/no-answer retention.ms" in ran.err) == (Exit.UNREACHABLE, True)


def test_a_change_is_made_though_messages_have_no_room(on_broker: Kctl, broker: KafkadProcess, tmp_path: Path) -> None:
    on_broker("topics", "create", "mute", "-p", 1, "-r", 1)
    command = [sys.executable, "-m", "kctl", "-b", broker.bootstrap, "topics", "delete", "mute", "absent", "-y"]
    command += ["--undo-dir", str(tmp_path)]
    with open("/dev/full", "w") as full:
        ran = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=full, check=False)
    assert ran.returncode == Exit.NOT_FOUND, "the true exit code: one of them is not there"
    assert on_broker("topics", "describe", "mute").code == Exit.NOT_FOUND


def test_what_is_not_read_of_a_list_is_no_failure(on_broker: Kctl, broker: KafkadProcess) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ran = subprocess.run(
        [sys.executable, "-m", "kctl", "-b", broker.bootstrap, "topics", "list"], stdout=writing, check=False
    )
    os.close(writing)
    assert ran.returncode == Exit.DONE


def test_records_are_sent_whoever_reads(on_broker: Kctl, broker: KafkadProcess) -> None:
    on_broker("topics", "create", "unread-records", "-p", 1, "-r", 1)
    command = [sys.executable, "-m", "kctl", "-b", broker.bootstrap, "produce", "unread-records"]
    reading, writing = os.pipe()
    os.close(reading)
    ran = subprocess.run(command, input=b"a\nb\n", stdout=writing, stderr=writing, check=False)
    os.close(writing)
    assert ran.returncode == Exit.DONE
    assert on_broker("consume", "unread-records").out == "a\nb\n"


def test_no_name_conceals_the_rest_of_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch, answer="g\x1b[8m")
    changes.confirm(asked.settings, "Delete group g\x1b[8m?")
    changes.confirm_typed("It goes.", "g\x1b[8m")
    assert asked.questions == ["Delete group g\\x1b[8m?", 'It goes. Type "g\\x1b[8m" to go on']
