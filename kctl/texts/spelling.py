"""Command lines for a person to paste, as in `undo: kctl -c prod topics delete orders`."""

from __future__ import annotations

import re
from shlex import quote

from kctl.settings import Settings

_ADDRESS = "bootstrap.servers"


def spelled(settings: Settings, *commands: str) -> str:
    """These commands of kctl on the same cluster as this one, whatever the current context is."""
    kctl = _kctl(settings)
    return "; ".join(f"{kctl} {command}" for command in commands)


def on_this_cluster(settings: Settings, text: str) -> str:
    """A hint with its commands for the same cluster as this one; --help is the same for all."""
    return text if "--help" in text else re.sub(r"\bkctl(?= [a-z])", lambda _: _kctl(settings), text)


def _kctl(settings: Settings) -> str:
    words = ["kctl"]
    words += ["-c", quote(settings.context)] if settings.context else []
    words += ["-b", quote(settings.bootstrap)] if settings.bootstrap else []
    words += ["--command-config", quote(settings.command_config)] if settings.command_config else []
    words += ["-X", quote(f"{_ADDRESS}={settings.extra[_ADDRESS]}")] if _ADDRESS in settings.extra else []
    return " ".join(words)
