"""How a command fails: an exit code that scripts can rely on, and what a person reads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import IntEnum

from kafkad.errors import ErrorCode


class Exit(IntEnum):
    """What every command's exit code means."""

    DONE = 0
    FAILED = 1
    """A broker refused, or of several items some failed."""
    USAGE = 2
    NOT_FOUND = 3
    UNREACHABLE = 4
    """Nobody answered, or not in time."""
    UNAUTHORIZED = 5
    REFUSED = 6
    """By kctl itself: a conflict, or nobody confirmed."""
    FINDINGS = 7
    """The command did its work, and what it looked at is not in order."""
    INTERRUPTED = 130


class KctlError(Exception):
    """What is wrong and where, in one line; `code` as the broker names it; `hints` say what to do next."""

    def __init__(
        self, what: str, *, exit_code: IntEnum = Exit.FAILED, code: str = "", hints: Sequence[str] = ()
    ) -> None:
        super().__init__(what)
        self.what = what
        self.exit_code = exit_code
        self.code = code
        self.hints = tuple(hints)


def did_you_mean(word: str, known: Sequence[str]) -> tuple[str, ...]:
    """A hint when `word` is close to something known."""
    from difflib import get_close_matches  # only a mistake pays for it

    close = [f'"{name}"' for name in get_close_matches(word, known, n=3, cutoff=0.6)]
    return (f"did you mean {' or '.join(close)}?",) if close else ()


_NOT_FOUND = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.RESOURCE_NOT_FOUND,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND,
    ErrorCode.LOG_DIR_NOT_FOUND,
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
}
_UNREACHABLE = {
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.BROKER_NOT_AVAILABLE,
}
_UNAUTHORIZED = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ErrorCode.SASL_AUTHENTICATION_FAILED,
    ErrorCode.UNSUPPORTED_SASL_MECHANISM,
    ErrorCode.ILLEGAL_SASL_STATE,
}
_REFUSED = {ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.REASSIGNMENT_IN_PROGRESS}


def code_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error code {code}"


def exit_of(code: int) -> Exit:
    """What kctl exits with after a broker answered `code`."""
    if code in _NOT_FOUND:
        return Exit.NOT_FOUND
    if code in _UNREACHABLE:
        return Exit.UNREACHABLE
    if code in _UNAUTHORIZED:
        return Exit.UNAUTHORIZED
    return Exit.REFUSED if code in _REFUSED else Exit.FAILED


def failure(code: int, what: str, message: str | None = None, hints: Sequence[str] = ()) -> KctlError:
    """A broker's refusal: `what` failed here, and what the broker said of it."""
    told = f"{what}: {message.rstrip('.')}" if message else what
    return KctlError(told, exit_code=exit_of(code), code=code_name(code), hints=hints)


def of_file(error: OSError) -> KctlError:
    """What the system said of a file."""
    code = Exit.NOT_FOUND if isinstance(error, FileNotFoundError) else Exit.FAILED
    return KctlError(f"{os.fsdecode(error.filename)}: {error.strerror}", exit_code=code)


def exit_code(errors: Sequence[KctlError]) -> IntEnum:
    """Of a command that did what it could: the errors' own code, or FAILED where they differ."""
    codes = {error.exit_code for error in errors}
    return Exit.DONE if not codes else codes.pop() if len(codes) == 1 else Exit.FAILED
