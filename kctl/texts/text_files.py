"""Reads text files: those that people write, and those that programs write for kctl."""

from __future__ import annotations

from kctl.errors import Exit, KctlError


def text_of(path: str) -> str:
    """The text of a file that a person wrote, or a program for kctl. KctlError if it is something else."""
    with open(path, "rb") as stream:
        return decoded(stream.read(), path)


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
