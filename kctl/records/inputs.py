"""Inputs of `produce`: lines as they come, so that a slow pipe's first record does not wait for its second."""

from __future__ import annotations

import os
from collections.abc import Iterator
from select import select

from kctl.errors import KctlError

_CHUNK = 1 << 18
"""Between two of them is where somebody who interrupts is heard."""
_LONGEST_LINE = 256 << 20


def lines(descriptor: int, patience: float) -> Iterator[list[bytes]]:
    """The lines that have come, without their ends; an empty list when none came within `patience` seconds."""
    rest: list[bytes] = []
    while True:
        if not select([descriptor], [], [], patience)[0]:
            yield []
            continue
        chunk = os.read(descriptor, _CHUNK)
        if not chunk:
            break
        rest.append(chunk)
        if b"\n" not in chunk:
            if len(rest) * _CHUNK > _LONGEST_LINE and sum(map(len, rest)) > _LONGEST_LINE:
                raise KctlError(f"a line of more than {_LONGEST_LINE >> 20} MiB")
            continue
        found = chunk.split(b"\n")
        found[0] = b"".join([*rest[:-1], found[0]])
        rest = [found.pop()]
        yield [line.removesuffix(b"\r") for line in found] if b"\r" in chunk or b"\r" in found[0] else found
    if any(rest):
        yield [b"".join(rest)]


def all_of(descriptor: int) -> bytes:
    parts = []
    while chunk := os.read(descriptor, _CHUNK):
        parts.append(chunk)
    return b"".join(parts)
