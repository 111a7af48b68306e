"""Answering when work is done, and what is told of a request whose error ends its connection, then or at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, TypeVar

from kafkad.net.connection import Connection
from kafkad.wire.primitives import MalformedError

log = logging.getLogger(__name__)

LARGE_FRAME: Final = 512
"""Larger requests are read and answered in pieces."""
LARGEST_VERSIONS: Final = 4 * 1024
"""Of ApiVersions, which names the client's software, and nothing else: up to here it is answered at once."""

T = TypeVar("T")


class Refused(Exception):
    """A request that is answered by the end of its connection."""


def reply_later(
    connection: Connection, name: str, version: int, work: asyncio.Future[T], reply: Callable[[T], None]
) -> None:
    """Calls `reply` with the result, in a later turn of the loop; name and version are the request's."""
    work.add_done_callback(lambda done: or_close(connection, name, version, lambda: reply(done.result())))


def or_close(connection: Connection, name: str, version: int, reply: Callable[[], None]) -> None:
    try:
        reply()
    except asyncio.CancelledError:
        connection.end()
    except Exception as error:
        close_for(connection, name, version, error)


def close_for(connection: Connection, name: str, version: int, error: Exception) -> None:
    """To be called where the exception is handled."""
    tell_of(connection, f"{name} v{version}", error)
    connection.end()


def tell_of(connection: Connection, asked: str, error: Exception) -> None:
    """Why the connection is closed: by this error in handling what it asked."""
    if isinstance(error, Refused):
        log.warning("closing %s: refused: %s", connection.address, error)
    elif isinstance(error, MalformedError):
        log.warning("closing %s: %s is malformed: %s", connection.address, asked, error)
    elif isinstance(error, MemoryError):
        log.error("closing %s: not enough memory for %s", connection.address, asked)
    else:
        log.exception("closing %s: internal error while handling %s", connection.address, asked)
