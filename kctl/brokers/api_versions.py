"""`kctl brokers api-versions`."""

from __future__ import annotations

from collections.abc import Mapping

import click

from kafkad.wire.apis import APIS
from kctl.command.chosen import chosen_brokers
from kctl.command.cluster_names import broker_ids
from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.errors import KctlError
from kctl.reach.session import Session
from kctl.texts.output import Column, Row, note

COLUMNS = (
    Column("api", "The API's name."),
    Column("key", "Its number.", "number"),
    Column("first", "The first version that all these brokers serve.", "number"),
    Column("last", "The last one.", "number"),
    Column("brokers", "The brokers that serve these versions.", "list"),
)


@click.command("api-versions", cls=KctlCommand, columns=COLUMNS)
@click.argument("brokers", nargs=-1, type=int, shell_complete=broker_ids, metavar="[BROKER…]")
@pass_session
def api_versions(session: Session, brokers: tuple[int, ...]) -> int:
    """List the APIs that brokers serve, with their versions.

    If brokers serve an API in different versions, it has more than one line.

    Example: kctl brokers api-versions 1
    """
    versions: dict[int, Mapping[int, tuple[int, int]]] = {}
    errors = []
    for broker in chosen_brokers(session, brokers):
        try:
            versions[broker] = session.connection(broker).versions
        except KctlError as error:
            if broker in brokers:
                errors.append(error)
            else:
                note(session.settings, error.with_code)
    return answer(session, COLUMNS, rows_of(versions), errors)


def rows_of(versions: Mapping[int, Mapping[int, tuple[int, int]]]) -> list[Row]:
    """One row for each API and range of versions, with the brokers that have it."""
    ranges: dict[tuple[int, int, int], list[int]] = {}
    for broker, served in versions.items():
        for key, (first, last) in served.items():
            ranges.setdefault((key, first, last), []).append(broker)
    return [
        {
            "api": APIS[key].name if key in APIS else f"({key})",
            "key": key,
            "first": first,
            "last": last,
            "brokers": brokers,
        }
        for (key, first, last), brokers in sorted(ranges.items())
    ]
