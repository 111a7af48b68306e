"""Secrets that come by standard input."""

from __future__ import annotations

import io

import pytest

from kctl.errors import Exit
from tests.kctl.conftest import Kctl


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
@pytest.mark.parametrize("words", [("contexts", "set", "x", "password=-"), ("-y", "users", "set-scram", "alice")])
def test_a_password_that_is_not_utf_8_is_refused_where_it_is_read(
    on_broker: Kctl, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], errors: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"p\xe4ss\n"), "utf-8", errors))
    ran = on_broker(*words)
    assert (ran.code, ran.out, ran.err) == (Exit.USAGE, "", "error: the password is not UTF-8\n")
