"""`kctl brokers list`."""

from __future__ import annotations

import click

from kctl.brokers.facts import STATES, BrokerFacts, broker_facts, kafkads
from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.reach.session import Session
from kctl.texts.output import Column, Row, note

COLUMNS = (
    Column("id", "The broker's id.", "number"),
    Column("host", "Where clients reach it.", header="HOST"),
    Column("port", "Its port.", "number", wide=True),
    Column("rack", "Its rack."),
    Column("version", "The release of Kafka that serves the same APIs.", header="VERSION(API)"),
    Column("kafkad", "The release of kafkad; none of another Kafka, or where its settings cannot be asked for."),
    Column("leaders", "Partitions it leads.", "number"),
    Column("partitions", "Partitions it holds a replica of.", "number"),
    Column("out_of_sync", "Partitions it holds a replica of that is not in sync.", "number", wide=True),
    Column("size_bytes", "Bytes in its log directories.", "size", "BYTES"),
    Column("free_bytes", "Room left on its disks.", "size", "FREE"),
    Column("total_bytes", "Size of its disks.", "size", "DISK", wide=True),
    Column("controller", "Whether it is the controller.", machine=True),
    Column("controller_shown", "Whether it is the controller.", header="CONTROLLER", shown=True),
    Column("state", STATES, "state"),
)


@click.command("list", cls=KctlCommand, columns=COLUMNS, watchable=True)
@pass_session
def list_brokers(session: Session) -> int:
    """List brokers with what they lead and hold.

    Brokers that are down are listed as long as they hold replicas. Kafka brokers do not report their version, so the
    Kafka release that serves the same APIs is shown. KAFKAD is kafkad's own version; other Kafka brokers have none.

    Example: kctl brokers list
    """
    found, _, silent = broker_facts(session, session.metadata())
    for error in silent:
        note(session.settings, f"sizes are incomplete: {error.with_code}")
    versions = {broker: each.version for broker, each in kafkads(session, found).items()}
    return answer(session, COLUMNS, [{**_row(broker), "kafkad": versions.get(broker.id)} for broker in found])


def _row(broker: BrokerFacts) -> Row:
    return {
        **broker.row(),
        "total_bytes": broker.total_bytes,
        "controller_shown": "yes" if broker.is_controller else "",
    }
