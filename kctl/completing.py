"""Names that a shell completes: what was last heard of a cluster, kept for a moment in files.

For `shell_complete=` of arguments and options. Nothing here fails: a shell that completes nothing is told nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

import click

from kctl.access import Access, resolve
from kctl.errors import KctlError
from kctl.settings import Settings

FRESH_SECONDS = 30


def topic_names(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Internal ones only when asked for by their first letters."""
    names = _names(context, "topics")
    return [name for name in names if name.startswith(incomplete) and (incomplete or not name.startswith("__"))]


def group_names(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in _names(context, "groups") if name.startswith(incomplete)]


def broker_ids(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in _names(context, "brokers") if name.startswith(incomplete)]


def config_names(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Those of brokers once the command line names brokers, as `broker/1`, and those of topics otherwise."""
    kind = "broker-configs" if _speaks_of_brokers(context.params.values()) else "topic-configs"
    return [name for name in _names(context, kind) if name.startswith(incomplete)]


def _speaks_of_brokers(values: object) -> bool:
    if isinstance(values, str):
        return values.startswith("broker")
    return hasattr(values, "__iter__") and any(_speaks_of_brokers(value) for value in values)


def _names(context: click.Context, kind: str) -> list[str]:
    try:
        settings: Any = context.ensure_object(Settings)
        access = resolve(settings, os.environ)
        return fresh(cache_file(access, kind, os.environ), time.time()) or []
    except (KctlError, OSError):
        return []


def cache_file(access: Access, kind: str, environment: Mapping[str, str]) -> str:
    """A directory for each cluster, named as the user knows it: by its context, or its first address."""
    root = environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    host, port = access.bootstrap[0]
    cluster = (access.context or f"{host}:{port}").replace("/", "_")
    return os.path.join(root, "kctl", cluster, kind)


def fresh(file: str, now: float) -> list[str] | None:
    """The names in a file, one a line; None when there is none, or it is too old."""
    try:
        if not 0 <= now - os.stat(file).st_mtime < FRESH_SECONDS:
            return None
        with open(file, encoding="utf-8") as stream:
            return stream.read().splitlines()
    except OSError:
        return None


def keep(file: str, names: list[str]) -> None:
    """In one step: a shell may ask again meanwhile. A cache that cannot be written is none."""
    try:
        os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
        with open(f"{file}.{os.getpid()}", "w", encoding="utf-8") as stream:
            stream.writelines(f"{name}\n" for name in names if name.isprintable())
        os.replace(stream.name, file)
    except OSError:
        return
