"""Passes a program's output on as it comes, without secrets."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from threading import Thread

_PIECE = 1 << 16


class Masking:
    """Replaces secrets in a stream of bytes. What may be the beginning of a secret waits for the next piece."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = sorted({secret.encode() for secret in secrets}, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, self._secrets)))
        self._waiting = b""

    def piece(self, piece: bytes) -> bytes:
        text = self._waiting + piece
        end = len(text) - max((_overlap(text, secret) for secret in self._secrets), default=0)
        if not any(secret in text for secret in self._secrets):
            self._waiting = text[end:]
            return text[:end]
        for found in self._pattern.finditer(text):
            if found.start() < end < found.end():
                end = found.start()
        self._waiting = text[end:]
        return self._masked(text[:end])

    def rest(self) -> bytes:
        rest, self._waiting = self._waiting, b""
        return self._masked(rest)

    def _masked(self, text: bytes) -> bytes:
        return self._pattern.sub(b"****", text) if self._secrets else text


def _overlap(text: bytes, secret: bytes) -> int:
    """The length of the longest end of the text with which the secret begins, but for the whole secret."""
    lengths = range(min(len(text), len(secret) - 1), 0, -1)
    return next((length for length in lengths if text.endswith(secret[:length])), 0)


class Relay:
    """A pipe whose other end is a process's output, and the thread that reads it. If nobody reads ours, the rest is
    dropped, and the process goes on."""

    def __init__(self, target: int, secrets: Iterable[str]) -> None:
        self._target = target
        self._masking = Masking(secrets)
        self._reading, self.writing = os.pipe()
        self._thread = Thread(target=self._pass_on, name="output", daemon=True)

    def start(self) -> None:
        """Begins, once the process has its own copy of the writing end."""
        os.close(self.writing)
        self._thread.start()

    def finish(self, seconds: float) -> None:
        """Waits for the end of the output, which something that outlives the process may keep open."""
        self._thread.join(seconds)

    def _pass_on(self) -> None:
        while piece := os.read(self._reading, _PIECE):
            self._write(self._masking.piece(piece))
        self._write(self._masking.rest())
        os.close(self._reading)

    def _write(self, text: bytes) -> None:
        while text:
            try:
                text = text[os.write(self._target, text) :]
            except OSError:
                return  # nobody reads it
