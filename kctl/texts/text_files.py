"""Reads files that a command line or a setting names: those of people, and those that programs write for kctl. Writes
those that kctl keeps for a later command."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO, Literal

from kctl.errors import Exit, KctlError

if TYPE_CHECKING:
    from pathlib import Path


@contextmanager
def opened(path: str) -> Iterator[BinaryIO]:
    """The file, for reading. KctlError for what might never begin or end, as a named pipe that nobody writes to."""
    from kafkad.opening import open_at_once

    with open(path, "rb", opener=open_at_once) as stream:
        status = os.fstat(stream.fileno())
        ends = stat.S_ISREG(status.st_mode) or os.path.samestat(status, os.stat(os.devnull))
        if not ends and not _is_handed_over(path):
            hints = ("a pipe can be given as <(COMMAND), or as /dev/stdin",)
            raise KctlError(f"{path} is no regular file", exit_code=Exit.USAGE, hints=hints)
        os.set_blocking(stream.fileno(), True)
        yield stream


def _is_handed_over(path: str) -> bool:
    """It is a descriptor that whoever started kctl has opened for it, as a shell does for `<(COMMAND)`."""
    return os.path.abspath(path).startswith(("/dev/fd/", "/dev/stdin", "/proc/self/fd/"))


def content_of(path: str) -> bytes:
    with opened(path) as stream:
        return stream.read()


def text_of(path: str) -> str:
    """The text of a file that a person wrote, or a program for kctl. KctlError if it is something else."""
    return decoded(content_of(path), path)


def decoded(data: bytes, path: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        what = (
            f"{path} is not a text file: byte {error.start + 1} of it, {error.object[error.start]:#04x}, is not UTF-8"
        )
        raise KctlError(what, exit_code=Exit.USAGE) from None


def in_utf8(text: str, what: str) -> str:
    """The text, as a command line, the environment or standard input has it. KctlError if it had other bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise KctlError(f"{what} is not UTF-8", exit_code=Exit.USAGE) from None
    return text


def write(path: str, text: str, mode: Literal["w", "x"] = "w") -> None:
    """As `open` does with this mode. KctlError, with the path, if it cannot be written: "x" leaves nothing of it then.
    FileExistsError if it is there already."""
    try:
        with open(path, mode, encoding="utf-8") as file:
            try:
                file.write(text)
                file.flush()
            except OSError:
                if mode == "x":
                    with suppress(OSError):
                        os.unlink(path)
                raise
    except FileExistsError:
        raise
    except OSError as error:
        raise KctlError(f"{path} cannot be written: {error.strerror}") from error


def with_time(stem: str) -> str:
    """The name of a file that says when it was made."""
    return f"{stem}-{time.strftime('%Y%m%dT%H%M%S')}"


def save_new(directory: Path, names: Collection[str], plural: str, suffix: str, text: str) -> Path:
    """In a file whose name says what of (the one name, or the plural) and when, with a number behind it where that name
    is taken: nothing is written over. KctlError if that cannot be done."""
    of = next(iter(names)) if len(names) == 1 else plural
    stem = with_time(re.sub(r"[^A-Za-z0-9._-]", "_", of)[:150])
    count = 1
    while True:
        path = directory / (f"{stem}{suffix}" if count == 1 else f"{stem}-{count}{suffix}")
        try:
            write(str(path), text, "x")
            return path
        except FileExistsError:
            count += 1
