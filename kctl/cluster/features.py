"""`kctl cluster features`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from kafkad import __version__
from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.errors import KctlError
from kctl.reach.session import Session
from kctl.texts.output import Column, Row, note

COLUMNS = (
    Column("feature", "The feature's name."),
    Column("level", "The level that the cluster has agreed on; null: none.", "number"),
    Column("first", "The first level that every broker can work at; null: not every broker knows it.", "number"),
    Column("last", "The last one.", "number"),
    Column("brokers", "The brokers that know it.", "list"),
)


@click.command("features", cls=KctlCommand, columns=COLUMNS)
@pass_session
def features(session: Session) -> int:
    """List features with their levels.

    Clusters of Kafka with ZooKeeper usually have none: they use inter.broker.protocol.version instead. Those of kafkad
    have transaction.version.

    Example: kctl cluster features
    """
    from kafkad.wire.messages.api_versions import ApiVersionsRequest

    request = ApiVersionsRequest(client_software_name="kctl", client_software_version=__version__)
    answers = session.call_each(dict.fromkeys(session.cluster.brokers, request))
    for found in answers.values():
        if isinstance(found, KctlError):
            note(session.settings, found.with_code)
    rows = rows_of({broker: found for broker, found in answers.items() if not isinstance(found, KctlError)})
    if not rows:
        note(session.settings, "the cluster has no features")
    return answer(session, COLUMNS, rows)


def rows_of(answers: Mapping[int, Any]) -> list[Row]:
    """The features in the ApiVersions of each broker."""
    supported: dict[str, dict[int, tuple[int, int]]] = {}
    levels: dict[str, int] = {}
    epoch = -1
    for broker, found in answers.items():
        for feature in found.supported_features:
            supported.setdefault(feature.name, {})[broker] = (feature.min_version, feature.max_version)
        if found.finalized_features_epoch > epoch:
            epoch = found.finalized_features_epoch
            levels = {feature.name: feature.max_version_level for feature in found.finalized_features}
    rows: list[Row] = []
    for name in sorted({*supported, *levels}):
        ranges = supported.get(name, {})
        everyone = len(ranges) == len(answers)
        rows.append(
            {
                "feature": name,
                "level": levels.get(name),
                "first": max(first for first, _ in ranges.values()) if everyone else None,
                "last": min(last for _, last in ranges.values()) if everyone else None,
                "brokers": list(ranges),
            }
        )
    return rows
