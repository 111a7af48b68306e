"""The steps of every command that changes something: show the effect, ask, act, report the result.

What only adds, and is undone by one command, is done without asking. Whatever becomes of the reader of the output, a
change is carried out, and the exit code says how.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING

import click

from kctl.command.verb import answer
from kctl.errors import Exit, KctlError, exit_code
from kctl.texts.output import Column, Document, Row, Writer, keep_writing, note, render_errors
from kctl.texts.taming import line_text

if TYPE_CHECKING:
    from kctl.reach.session import Session
    from kctl.settings import Settings

_NOTHING = "nothing was changed"
_STARTED = "the change was started and may be complete or partly done: check before you repeat it"


class Change:
    """One change to a cluster. The rows say what it does: current, new, difference; `errors` what of all that was
    asked for cannot be done: the rest is.

    People see them at once; programs get one document, of the result, or of the plan with --dry-run.
    """

    def __init__(
        self, session: Session, columns: Sequence[Column], rows: Iterable[Row], errors: Sequence[KctlError] = ()
    ) -> None:
        self._session = session
        self._settings = session.settings
        self._columns = columns
        self._rows = list(rows)
        self._errors = list(errors)
        self._settings.untold = self._errors
        self._shown = False
        if self._settings.limit is not None:
            what = "--limit would show a part of what is changed: leave it out, and name what is to be changed"
            raise KctlError(what, exit_code=Exit.USAGE)

    @property
    def untold(self) -> list[KctlError]:
        """The errors that nobody has been told yet, for another change that ends this one."""
        return [] if self._shown else self._errors

    @property
    def code(self) -> IntEnum:
        """The exit code if nothing is changed: with --dry-run, that of what could not have been done anyway."""
        return exit_code(self._errors)

    def confirmed(self, question: str, *, type_this: str = "", only_adds: bool = False) -> bool:
        """False with --dry-run. `type_this` is for what cannot be undone: a name, or how many, to be typed.

        `only_adds`: one command undoes it, so that nobody is asked but for a protected cluster, whose name is to be
        typed in any case. KctlError REFUSED if nobody is there to answer, or whoever is says no.
        """
        self._settings.changed = _NOTHING
        if self._settings.dry_run:
            self._show()
            note(self._settings, f"dry run: {_NOTHING}")
            return False
        keep_writing()
        access = self._session.access
        asks = access.protected or not only_adds
        if self._settings.is_text and asks:
            self._show()
            sys.stdout.flush()
        if access.protected:
            confirm_typed(f"{question} {access.label} is protected.", access.label)
        if type_this and not self._settings.yes and _someone_is_there():
            confirm_typed(question, type_this)
        elif asks and not access.protected:
            confirm(self._settings, question)
        self._settings.changed = _STARTED
        return True

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """What is read and saved once it is confirmed, before the first broker is asked to change anything."""
        self._settings.changed = _NOTHING
        yield
        self._settings.changed = _STARTED

    def given_up(self, errors: Sequence[KctlError]) -> IntEnum:
        """The result where nothing is changed, although it was confirmed, because of these errors."""
        self._settings.changed = _NOTHING
        self._answer([], errors, None)
        note(self._settings, _NOTHING)
        return exit_code([*self._errors, *errors])

    def done(
        self,
        rows: Iterable[Row] | None = None,
        errors: Sequence[KctlError] = (),
        *,
        verified: str = "",
        seen: Callable[[], bool] | None = None,
        different: Callable[[], Sequence[KctlError]] = tuple,
        undo: str = "",
        more: Callable[[], Iterable[str]] | None = None,
    ) -> IntEnum:
        """The result: rows for programs (those of the plan by default), a word and the way back for people, who see the
        rows too if they have not yet, and `more` lines.

        `verified` is said once `seen`, which reads back, has been true. If it never is within the time-out, that is
        said, or the errors that `different` gives: of what is neither as it was nor as it was to be. `undo` is said
        whatever becomes of all that: brokers may be gone, and standard output may have no room.
        """
        if verified and not errors:
            self._settings.changed = "the change was made, but not verified"
        rows = self._rows if rows is None else list(rows)
        try:
            is_seen = not errors and (seen is None or self._session.wait_until(seen))
            if verified and is_seen:
                self._settings.changed = "the change was made"
            if not is_seen and not errors:
                errors = different()
            self._answer(rows, errors, more)
            if verified and is_seen:
                note(self._settings, f"verified: {verified}")
            elif verified and not errors:
                note(self._settings, f"not verified: the brokers accepted it, but do not show it yet ({verified})")
        finally:
            if undo:
                note(self._settings, f"undo: {undo}")
        return exit_code([*self._errors, *errors])

    def _answer(self, rows: list[Row], errors: Sequence[KctlError], more: Callable[[], Iterable[str]] | None) -> None:
        untold = [*self.untold, *(error for error in errors if error not in self._errors)]
        self._settings.untold = ()

        def text() -> Iterable[str]:
            if rows and not self._shown:
                yield from Writer(self._settings, self._columns, Document(self._settings.command)).table(rows)
            yield from more() if more else ()

        answer(self._session, self._columns, rows, untold, text=text)

    def _show(self) -> None:
        document = Document(self._settings.command, cluster_id=self._session.cluster.cluster_id, dry_run=True)
        if self._rows or not self._settings.is_text:
            Writer(self._settings, self._columns, document).write(self._rows, self._errors)
        render_errors(self._errors, self._settings)
        self._settings.untold = ()
        self._shown = True


def confirm(settings: Settings, question: str) -> None:
    """Asks, unless -y was given. KctlError REFUSED for a no, or if nobody is there."""
    keep_writing()
    if settings.yes:
        return
    if not _someone_is_there():
        raise _refused(
            f"no terminal to confirm on: {question}",
            "use -y to skip the question",
            "use --dry-run to only show the effect",
        )
    if not click.confirm(line_text(question), default=False, err=True):
        raise _refused("not confirmed: nothing was changed")


def confirm_typed(question: str, text: str) -> None:
    """Asks for `text` itself; -y does not spare anybody that."""
    if not _someone_is_there():
        raise _refused(f"no terminal to confirm on: {question}", f'"{text}" must be typed on a terminal')
    given = click.prompt(line_text(f'{question} Type "{text}" to go on'), default="", show_default=False, err=True)
    if given.strip() != text:
        raise _refused("not confirmed: nothing was changed")


def _someone_is_there() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _refused(what: str, *hints: str) -> KctlError:
    return KctlError(what, exit_code=Exit.REFUSED, hints=hints)
