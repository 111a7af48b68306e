"""What every command that changes something does: show the effect, ask, act, say what became of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

import click

from kctl.command import answer
from kctl.errors import Exit, KctlError
from kctl.output import Column, Document, Row, Writer, note

if TYPE_CHECKING:
    from kctl.session import Session
    from kctl.settings import Settings


class Change:
    """One change to a cluster. The rows say what it does: current, new, difference.

    People see them at once; programs get one document, of the result, or of the plan with --dry-run.
    """

    def __init__(self, session: Session, columns: Sequence[Column], rows: Iterable[Row]) -> None:
        self._session = session
        self._settings = session.settings
        self._columns = columns
        self._rows = list(rows)

    def confirmed(self, question: str, *, type_this: str = "") -> bool:
        """False with --dry-run. `type_this` is for what cannot be undone: a name, or how many, to be typed.

        KctlError REFUSED if nobody is there to answer, or whoever is says no.
        """
        self._settings.changed = "nothing was changed"
        if self._settings.dry_run:
            self._show()
            note(self._settings, "dry run: nothing was changed")
            return False
        if self._settings.is_text:
            self._show()
            sys.stdout.flush()
        access = self._session.access
        if access.protected:
            confirm_typed(f"{question} {access.label} is protected.", access.label)
        elif type_this and not self._settings.yes and _someone_is_there():
            confirm_typed(question, type_this)
        else:
            confirm(self._settings, question)
        self._settings.changed = "the change was begun, and may be done in part or whole; look before you repeat it"
        return True

    def done(
        self,
        rows: Iterable[Row] | None = None,
        errors: Sequence[KctlError] = (),
        *,
        verified: str = "",
        seen: Callable[[], bool] | None = None,
        undo: str = "",
    ) -> IntEnum:
        """The result: rows for programs (those of the plan by default), a word and the way back for people.

        `verified` is said once `seen`, which reads back, has been true; if it never is within the time-out, that is.
        """
        if verified and not errors:
            self._settings.changed = "the change is made, but not verified"
        rows = self._rows if rows is None else list(rows)
        is_seen = not errors and (seen is None or self._session.wait_until(seen))
        code = answer(self._session, self._columns, rows, errors, text=lambda: ())
        if verified and is_seen:
            note(self._settings, f"verified: {verified}")
        elif verified and not errors:
            note(self._settings, f"not verified: the brokers took it, but do not show it yet ({verified})")
        if undo:
            note(self._settings, f"undo: {undo}")
        return code

    def _show(self) -> None:
        document = Document(self._settings.command, cluster_id=self._session.cluster.cluster_id, dry_run=True)
        Writer(self._settings, self._columns, document).write(self._rows)


def confirm(settings: Settings, question: str) -> None:
    """Asks, unless -y was given. KctlError REFUSED for a no, or if nobody is there."""
    if settings.yes:
        return
    if not _someone_is_there():
        raise _refused(
            f"nobody is there to confirm: {question}", "-y does it without asking", "--dry-run only shows it"
        )
    if not click.confirm(question, default=False, err=True):
        raise _refused("not confirmed, nothing was changed")


def confirm_typed(question: str, text: str) -> None:
    """Asks for `text` itself; -y does not spare anybody that."""
    if not _someone_is_there():
        raise _refused(f"nobody is there to confirm: {question}", f'"{text}" has to be typed on a terminal')
    given = click.prompt(f'{question} Type "{text}" to go on', default="", show_default=False, err=True)
    if given.strip() != text:
        raise _refused("not confirmed, nothing was changed")


def _someone_is_there() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _refused(what: str, *hints: str) -> KctlError:
    return KctlError(what, exit_code=Exit.REFUSED, hints=hints)
