"""Versions of the protocol between brokers, as in `inter.broker.protocol.version`."""

from __future__ import annotations

from typing import NamedTuple, Self

_LAST_OF_RELEASE = 99


class Protocol(NamedTuple):
    """In the order in which they came."""

    major: int
    minor: int
    iv: int

    @classmethod
    def of(cls, text: str) -> Self:
        """Of a valid text such as 3.5-IV1, 3.5 or 3.5.2, the last two of which mean the last one of the release."""
        release, _, iv = text.partition("-IV")
        major, minor, *patch = map(int, release.split("."))
        return cls(major, minor, int(iv) if iv and not patch else _LAST_OF_RELEASE)


OLDEST = Protocol(3, 2, 0)
"""The oldest one in which kafkad works together with other brokers: the first with all that it relies on, as topic ids,
AlterPartition and the recovery state of leaders."""
