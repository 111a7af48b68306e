"""Names that a shell completes: what was last heard of a cluster, kept for a moment in files.

For `shell_complete=` of arguments and options. Nothing here fails: a shell that completes nothing is told nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from kctl.errors import KctlError
from kctl.reach.access import Access, resolve
from kctl.settings import Settings

if TYPE_CHECKING:
    from kctl.reach.session import Session

FRESH_SECONDS = 30
LIVE_SECONDS = 0.3
"""Longest time that a shell, and whoever types in it, waits for brokers."""


def topic_names(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Internal ones only when asked for by their first letters."""
    names = _names(context, "topics")
    return [name for name in names if name.startswith(incomplete) and (incomplete or not name.startswith("__"))]


def group_names(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in _names(context, "groups") if name.startswith(incomplete)]


def broker_ids(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in _names(context, "brokers") if name.startswith(incomplete)]


def transactional_ids(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in _names(context, "transactions") if name.startswith(incomplete)]


def config_names(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Those of brokers once the command line names brokers, as `broker/1`, and those of topics otherwise."""
    kind = "broker-configs" if _speaks_of_brokers(context.params.values()) else "topic-configs"
    return [name for name in _names(context, kind) if name.startswith(incomplete)]


def context_names(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    from kctl.reach.contexts_file import path, read

    try:
        return [name for name in read(path(os.environ)).contexts if name.startswith(incomplete)]
    except (KctlError, OSError):
        return []


def _speaks_of_brokers(values: object) -> bool:
    if isinstance(values, str):
        return values.startswith("broker")
    return hasattr(values, "__iter__") and any(_speaks_of_brokers(value) for value in values)


def _names(context: click.Context, kind: str) -> list[str]:
    settings = context.ensure_object(Settings)
    try:
        file = cache_file(resolve(settings, os.environ), kind, os.environ)
    except (KctlError, OSError):
        return []
    names = fresh(file, time.time())
    if names is None:
        names = within(LIVE_SECONDS, lambda: _live_names(settings, kind))
        if names:
            keep(file, names)
    return names or []


def within(seconds: float, find: Callable[[], list[str]]) -> list[str] | None:
    """The result of `find`; None if it fails or takes longer. It is then left running: the process ends soon."""
    from threading import Thread

    found: list[list[str]] = []

    def work() -> None:
        with suppress(KctlError, OSError):
            found.append(find())

    thread = Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    return found[0] if found else None


def _live_names(settings: Settings, kind: str) -> list[str]:
    from kctl.reach.session import open_session

    settings.timeout = LIVE_SECONDS
    settings.verbose = False
    session = open_session(settings)
    try:
        return _LIVE[kind](session)
    finally:
        session.close()


def _topics(session: Session) -> list[str]:
    return sorted(topic.name for topic in session.metadata())


def _groups(session: Session) -> list[str]:
    from kafkad.wire.messages.list_groups import ListGroupsRequest

    answers = session.call_each({broker: ListGroupsRequest() for broker in session.cluster.brokers})
    found = [answer for answer in answers.values() if not isinstance(answer, KctlError)]
    return sorted(group.group_id for answer in found for group in answer.groups)


def _transactions(session: Session) -> list[str]:
    from kafkad.wire.messages.list_transactions import ListTransactionsRequest

    answers = session.ask_all(ListTransactionsRequest(state_filters=[], producer_id_filters=[]))
    return sorted(state.transactional_id for answer in answers for state in answer.transaction_states)


def _brokers(session: Session) -> list[str]:
    return [str(broker) for broker in session.cluster.brokers]


def _configs_of(session: Session, kind: int, names: list[str]) -> list[str]:
    from kafkad.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

    if not names:
        return []
    resource = DescribeConfigsResource(resource_type=kind, resource_name=names[0], configuration_keys=None)
    answer = session.call(DescribeConfigsRequest(resources=[resource]), int(names[0]) if kind == _BROKER else None)
    return [config.name for result in answer.results for config in result.configs]


_TOPIC, _BROKER = 2, 4
"""Kinds of things that have a configuration."""

_LIVE: dict[str, Callable[[Session], list[str]]] = {
    "topics": _topics,
    "groups": _groups,
    "brokers": _brokers,
    "transactions": _transactions,
    "topic-configs": lambda session: _configs_of(session, _TOPIC, _topics(session)),
    "broker-configs": lambda session: _configs_of(session, _BROKER, _brokers(session)),
}


def cache_file(access: Access, kind: str, environment: Mapping[str, str]) -> str:
    """A directory for each cluster, named as the user knows it: by its context, or its first address."""
    root = environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(root, "kctl", access.label.replace("/", "_"), kind)


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
    """Writes the cache in one step: a shell may ask again meanwhile. If it cannot be written there is none."""
    new = f"{file}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
        with open(new, "w", encoding="utf-8") as stream:
            stream.writelines(f"{name}\n" for name in names if name.isprintable())
        os.replace(new, file)
    except OSError:
        with suppress(OSError):
            os.unlink(new)
