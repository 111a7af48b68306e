"""Errors and exit codes of `kctl etl`: each code names the kind of failure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum

from kctl.errors import Exit, KctlError


class EtlExit(IntEnum):
    DONE = 0
    FAILED = 1
    """The job failed while it ran, or a case of its tests failed."""
    USAGE = 2
    """The job file, the command line or the SQL is wrong; nothing was written."""
    CLUSTER = 3
    """Unreachable, a topic is missing, or not authorised."""
    ENVIRONMENT = 4
    """No Java, no PySpark, no connector, a wrong checksum."""
    DATA = 5
    """Rows could not be parsed, too many of them are bad, or a check failed."""
    DATA_LOSS = 6
    """Records were deleted before they were read."""
    CHECKPOINT = 7
    """The checkpoint belongs to another job, is in use, or is incomplete."""
    INTERRUPTED = 130


class EtlError(KctlError):
    """An error: what is wrong, its place (`orders.yaml:14 sink.path`) and, as hints, what to do.

    `key` stands for the place until it is known: code that has the job file fills it in with `locate`.
    """

    has_lines = True

    def __init__(self, what: str, ends: EtlExit, *, hints: Sequence[str] = (), where: str = "", key: str = "") -> None:
        place = where or key
        super().__init__(f"{place}: {what}" if place else what, exit_code=ends, code=ends.name, hints=hints)
        self.key = key

    def locate(self, place_of: Callable[[str], str]) -> None:
        if self.key:
            self.what = place_of(self.key) + self.what.removeprefix(self.key)
            self.key = ""


def text_of(error: BaseException) -> str:
    """What an error says, whoever raised it."""
    return error.what if isinstance(error, KctlError) else str(error) or type(error).__name__


_FROM_KCTL = {
    Exit.USAGE: EtlExit.USAGE,
    Exit.NOT_FOUND: EtlExit.CLUSTER,
    Exit.UNREACHABLE: EtlExit.CLUSTER,
    Exit.UNAUTHORIZED: EtlExit.CLUSTER,
    Exit.REFUSED: EtlExit.USAGE,
    Exit.INTERRUPTED: EtlExit.INTERRUPTED,
}


def exit_of(error: KctlError) -> EtlExit:
    """The exit code for any error under `kctl etl`; kctl's own codes mean something else there."""
    if isinstance(error.exit_code, EtlExit):
        return error.exit_code
    return _FROM_KCTL.get(Exit(error.exit_code), EtlExit.FAILED)
