"""The configuration as it is read again while kafkad runs, by which time somebody may still be writing its file."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kafkad.config.config import Config
from kafkad.config.files import ConfigError

_UNCHANGED_MS = 250
"""So long is nobody writing a configuration that is taken."""
_MOST_READINGS = 20
"""Of a file that is written all the time."""


async def settled(read: Callable[[], Config], file: str | None, sleep: Callable[[float], Awaitable[None]]) -> Config:
    """Once two readings say the same: a part of a file that is being written would be taken for all of it. Raises the
    ConfigError that came twice, or one of its own where they differ all the time. Without a `file` one is enough.
    `sleep` takes milliseconds."""
    if file is None:
        return read()
    before: Config | None = None
    refused: ConfigError | None = None
    for _ in range(_MOST_READINGS):
        try:
            now = read()
        except ConfigError as error:
            if refused is not None and error.problems == refused.problems:
                raise
            before, refused = None, error
        else:
            if before is not None and now.says_the_same_as(before):
                return now
            before, refused = now, None
        await sleep(_UNCHANGED_MS)
    raise ConfigError(f"{file} changes all the time; send SIGHUP again once it does not")
