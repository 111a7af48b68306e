"""Names and patterns, and what they choose of what there is."""

from __future__ import annotations

import io

import click
import pytest

from kctl.command import choosing
from kctl.command.choosing import Choice
from kctl.command.verb import KctlCommand
from kctl.errors import Exit, KctlError
from tests.kctl.conftest import Kctl


def test_names_come_first_and_patterns_in_order() -> None:
    chosen = Choice("topic", ["c", "x"], ["a*"], ["b"])
    names, errors = chosen.of(["a1", "a2", "b", "c", "d"])
    assert names == ["c", "a1", "a2", "b"]
    assert [error.what for error in errors] == ['topic "x" does not exist']


def test_of_what_may_be_missing_in_a_list_it_is_not_said_that_it_does_not_exist() -> None:
    away = KctlError("a partition has no leader", exit_code=Exit.UNREACHABLE, code="COORDINATOR_NOT_AVAILABLE")
    names, errors = Choice("group", ["n1", "n2"], ["x*"], []).of(["n1", "n12"], [away])
    assert names == ["n1"]
    assert [(error.with_code, error.exit_code, error.hints) for error in errors] == [
        (f"{what} is not known: a partition has no leader (COORDINATOR_NOT_AVAILABLE)", Exit.UNREACHABLE, ())
        for what in ('whether group "n2" exists', "whether a group matches x*")
    ]


def test_a_pattern_is_compiled_once_however_many_names_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[object] = []
    compile_all = choosing._compiled
    monkeypatch.setattr(choosing, "_compiled", lambda patterns: compiled.append(1) or compile_all(patterns))
    assert len(Choice("topic", [], [], ["t.*"]).of([f"t{number}" for number in range(100)])[0]) == 100
    assert len(compiled) == 1


def test_no_name_on_standard_input_chooses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    told: list[Choice] = []

    @click.command(cls=KctlCommand)
    @choosing.choosing("topic")
    def look(chosen: Choice) -> None:
        told.append(chosen)

    look.main(["-"], standalone_mode=False)
    (chosen,) = told
    assert (bool(chosen), chosen.literal, chosen.of(["a", "b"])) == (True, True, ([], []))
    with pytest.raises(KctlError, match="no topic is named"):
        chosen.required()


def test_a_name_that_was_read_is_not_read_for_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("read\n"))
    chosen = Choice("group", ["a", "-"], [], []).also(["-", "b"])
    assert (chosen.names, chosen.literal) == (("a", "-", "b"), True)
    assert Choice("group", [], ["x*"], []).also(["b"]).literal is False
    none = Choice("group", [], [], [], decide=True).also([])
    assert (bool(none), none.names) == (True, ())


def test_behind_two_dashes_one_is_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("read\n"))
    told: list[tuple[str, ...]] = []

    @click.command(cls=KctlCommand)
    @choosing.choosing("topic")
    def look(chosen: Choice) -> None:
        told.append(chosen.names)

    look.main(["a", "-", "--", "-", "-b"], standalone_mode=False)
    look.main(["--", "-"], standalone_mode=False)
    assert told == [("a", "read", "-", "-b"), ("-",)]


def test_only_the_first_of_many_unknown_names_say_which_look_like_them() -> None:
    names = [f"order-{number}" for number in range(30)]
    errors = Choice("topic", names, [], []).of([f"orders-{number}" for number in range(30)])[1]
    assert [error.what for error in errors] == [f'topic "{name}" does not exist' for name in names]
    assert [bool(error.hints) for error in errors] == [True] * 10 + [False] * 20


@pytest.mark.parametrize(
    ("command", "request_name"),
    [
        ("topics list", "MetadataRequest to any"),
        ("configs describe", "MetadataRequest to any"),
        ("groups describe", "ListGroupsRequest"),
        ("groups export", "ListGroupsRequest"),
        ("txns describe", "ListTransactionsRequest"),
    ],
)
def test_what_there_is_is_asked_for_once_however_many_names_are_unknown(
    on_broker: Kctl, command: str, request_name: str
) -> None:
    prefix = "topic/" if command.startswith("configs") else ""

    def asked(count: int) -> int:
        ran = on_broker("-v", *command.split(), *(f"{prefix}unknown-{number}" for number in range(count)))
        assert ran.code == Exit.NOT_FOUND
        return ran.err.count(request_name)

    assert asked(5) == asked(1) > 0
