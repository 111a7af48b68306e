"""The context that a command about contexts means."""

from __future__ import annotations

import os
from typing import Any

from kctl.contexts.rows import load
from kctl.errors import Exit, KctlError
from kctl.settings import Settings


def chosen(settings: Settings, name: str | None) -> tuple[str, dict[str, Any]]:
    """The named one, or the one that a command without an address would use."""
    contexts = load()
    name = name or settings.context or os.environ.get("KCTL_CONTEXT") or contexts.current
    if not name:
        hint = "kctl contexts use NAME, or name one"
        raise KctlError("there is no current context", exit_code=Exit.NOT_FOUND, hints=(hint,))
    return name, contexts.get(name)
