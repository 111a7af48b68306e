"""Shell completion of `topic/orders retention.ms`."""

from __future__ import annotations

import click

from kctl.command.cluster_names import broker_ids, config_names, group_names, topic_names

_NAMES = {"topic": topic_names, "broker": broker_ids, "logger": broker_ids, "group": group_names}
_KINDS = (*(f"{kind}/" for kind in _NAMES), "client-metrics/", "user/", "client/", "ip/", "brokers")


def resources(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    kind, slash, name = incomplete.partition("/")
    if slash:
        known = _NAMES.get(kind)
        return [f"{kind}/{found}" for found in known(context, parameter, name)] if known else []
    return [word for word in _KINDS if word.startswith(incomplete)]


def resources_and_settings(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Settings are worth offering once a resource is named."""
    words = context.params.get(parameter.name or "") or ()
    settings = config_names(context, parameter, incomplete) if words and "/" not in incomplete else []
    return [*settings, *resources(context, parameter, incomplete)]
