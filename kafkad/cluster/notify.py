"""Tells listeners of a change, each of them whatever becomes of the others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import ParamSpec

log = logging.getLogger(__name__)

P = ParamSpec("P")


def notify_all(listeners: Iterable[Callable[P, None]], *args: P.args, **kwargs: P.kwargs) -> None:
    """One that fails must keep no other change from being taken in, such as that a user is gone."""
    for listener in listeners:
        try:
            listener(*args, **kwargs)
        except Exception:
            log.exception(
                "internal error: a change could not be applied (%s)", getattr(listener, "__qualname__", listener)
            )
