"""Limits open segment files to `kafkad.max.open.files` by closing those that were used longest ago.

A segment opens its files again when it needs them. Whoever still reads from a closed one has a LogFile of his own.
"""

from __future__ import annotations

import contextlib
from typing import Protocol

from kafkad.log.files import Files

_SHARE = 8
"""The part of the limit that is closed at once when it is exceeded, so that not every open has to close one."""
_AT_WORK = 4
"""Owners that used their files within so many opens may still be using them, and keep them."""


class Holder(Protocol):
    used: int
    """The value of `Files.opens` when it last used its files."""

    @property
    def open_files(self) -> int: ...

    @property
    def size(self) -> int: ...

    def give_up_files(self) -> None:
        """Close them all; none when something has to be written before, and cannot be."""


class LimitedFiles(Files):
    """The real disk. What keeps files open says so by `opened`: on the loop, or in the one thread that loads logs."""

    def __init__(self, limit: int) -> None:
        self.limit: int | None = limit
        self._held = 0
        self._sizes: dict[Holder, int] = {}
        """The owner of files, with its size when last looked at: appends leave no other trace."""

    def opened(self, holder: Holder) -> None:
        self.opens += 1
        holder.used = self.opens
        self._held += 1
        self._sizes.setdefault(holder, holder.size)
        if self.limit is None:
            return
        if self.opens % max(self.limit // _SHARE, 1) == 0:
            self._look()
        if self._held > self.limit:
            self._close_oldest(self.limit - self.limit // _SHARE)

    def closing(self, holder: Holder) -> None:
        if self._sizes.pop(holder, None) is not None:
            self._held -= holder.open_files

    def close_none(self) -> None:
        """Closes no more files, from now on: the logs are being closed, in several threads."""
        self.limit = None

    def _look(self) -> None:
        """Note which owners still hold files, and which were appended to."""
        for holder, size in list(self._sizes.items()):
            if not holder.open_files:
                del self._sizes[holder]
            elif holder.size != size:
                self._sizes[holder] = holder.size
                holder.used = max(holder.used, self.opens - _AT_WORK)
        self._held = sum(holder.open_files for holder in self._sizes)

    def _close_oldest(self, limit: int) -> None:
        self._look()
        for holder in sorted(self._sizes, key=lambda holder: holder.used):
            if self._held <= limit or holder.used > self.opens - _AT_WORK:
                break
            with contextlib.suppress(OSError):
                holder.give_up_files()
