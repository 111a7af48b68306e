"""Answering when work is done: what goes wrong then ends the connection, as it does while a request is read."""

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


def reply_later(connection: Connection, name: str, work: asyncio.Future[T], reply: Callable[[T], None]) -> None:
    """Calls `reply` with the result, in a later turn of the loop; `name` is the API's."""
    work.add_done_callback(lambda done: or_close(connection, name, lambda: reply(done.result())))


def or_close(connection: Connection, name: str, reply: Callable[[], None]) -> None:
    try:
        reply()
    except asyncio.CancelledError:
        connection.end()
    except MalformedError as error:
        close_for_malformed(connection, name, error)
    except Exception:
        close_for_internal_error(connection, name)


def close_for_malformed(connection: Connection, name: str, error: MalformedError) -> None:
    log.warning("closing %s: its %s cannot be read: %s", connection.address, name, error)
    connection.end()


def close_for_internal_error(connection: Connection, name: str) -> None:
    """To be called where the exception is handled."""
    log.exception("closing %s: internal error while handling its %s", connection.address, name)
    connection.end()
