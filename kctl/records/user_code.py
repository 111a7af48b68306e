"""Python that users bring along: `module:callable`, from the current directory or from where Python finds modules."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from kctl.errors import Exit, KctlError


def load_callable(name: str) -> Callable[..., Any]:
    """The user's callable. Errors in it are reported as its own."""
    called = _loaded(name)

    def call(*arguments: Any) -> Any:
        try:
            return called(*arguments)
        except Exception as error:  # it is not our code
            raise KctlError(f"{name} failed with {type(error).__name__}: {error}") from error

    return call


def _loaded(name: str) -> Callable[..., Any]:
    module_name, _, attribute = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise KctlError(f'cannot load "{name}": {error}', exit_code=Exit.USAGE, hints=_HINTS) from error
    if not callable(found):
        raise KctlError(f'"{name}" is not callable', exit_code=Exit.USAGE, hints=_HINTS)
    called: Callable[..., Any] = found
    return called


_HINTS = ("give module:callable; modules are looked for in the current directory first, then where Python has them",)
