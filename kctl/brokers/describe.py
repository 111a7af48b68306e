"""`kctl brokers describe`."""

from __future__ import annotations

from collections.abc import Iterator

import click

from kctl.brokers.facts import DOWN, KAFKAD_VERSION, STATES, BrokerFacts, broker_facts
from kctl.command.cluster_names import broker_ids
from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.configs.resources import Entry, Resource, described
from kctl.configs.values import with_unit
from kctl.reach.log_dirs import LogDir
from kctl.reach.session import Session
from kctl.texts.output import Column, Row, note, size_text

COLUMNS = (
    Column("id", "The broker's id.", "number"),
    Column("host", "Where clients reach it."),
    Column("port", "Its port.", "number"),
    Column("rack", "Its rack."),
    Column("version", "The release of Kafka that serves the same APIs."),
    Column("kafkad", "The release of kafkad; none of another Kafka."),
    Column("state", STATES, "state"),
    Column("controller", "Whether it is the controller."),
    Column("leaders", "Partitions it leads.", "number"),
    Column("partitions", "Partitions it holds a replica of.", "number"),
    Column("out_of_sync", "Of these, partitions it is not in sync with.", "number"),
    Column("size_bytes", "Bytes in its log directories.", "size", "BYTES"),
    Column("free_bytes", "Room left on its disks.", "size", "FREE"),
    Column("log_dirs", "Of each directory: path, size_bytes, free_bytes, total_bytes, error.", machine=True),
    Column("configs", "Of each setting that is not the default: name, value, source.", machine=True),
)


@click.command("describe", cls=KctlCommand, columns=COLUMNS)
@click.argument("brokers", nargs=-1, type=int, shell_complete=broker_ids, required=True, metavar="BROKER…")
@pass_session
def describe(session: Session, brokers: tuple[int, ...]) -> int:
    """Show a summary of brokers, with their settings.

    Example: kctl brokers describe 1
    """
    facts, directories, silent = broker_facts(session, session.metadata())
    for error in silent:
        note(session.settings, f"what it holds is not known: {error.with_code}")
    known = {broker.id: broker for broker in facts}
    errors = []
    pictures = []
    for wanted in dict.fromkeys(brokers):
        if wanted not in known:
            errors.append(session.no_broker([wanted]))
            continue
        resource = Resource("broker", str(wanted))
        found = described(session, [resource])[0].get(resource, []) if known[wanted].state != DOWN else []
        own = [directory for directory in directories if directory.broker == wanted]
        pictures.append((known[wanted], own, found))
    rows = [_row(*picture) for picture in pictures]
    return answer(session, COLUMNS, rows, errors, text=lambda: (line for p in pictures for line in _text(*p)))


def _row(broker: BrokerFacts, directories: list[LogDir], configs: list[Entry]) -> Row:
    return {
        **broker.row(),
        "kafkad": _kafkad(configs),
        "log_dirs": [
            {
                "path": directory.path,
                "size_bytes": sum(replica.size for replica in directory.replicas),
                "free_bytes": directory.free,
                "total_bytes": directory.total,
                "error": directory.error.what if directory.error else None,
            }
            for directory in directories
        ],
        "configs": [
            {"name": entry.name, "value": entry.shown, "source": entry.source}
            for entry in configs
            if not entry.is_default
        ],
    }


def _kafkad(configs: list[Entry]) -> str | None:
    return next((entry.value for entry in configs if entry.name == KAFKAD_VERSION), None)


def _version_text(release: str | None, kafkad: str | None) -> str:
    if kafkad is not None:
        return f"kafkad {kafkad}, with the APIs of Kafka {release}"
    return "-" if release is None else f"{release}, by its APIs"


def _text(broker: BrokerFacts, directories: list[LogDir], configs: list[Entry]) -> Iterator[str]:
    where = "-" if broker.host is None else f"{broker.host}:{broker.port}"
    lag = f", {broker.under_replicated} out of sync" if broker.under_replicated else ""
    yield f"broker      {broker.id}  {where}  {broker.state}{'  controller' if broker.is_controller else ''}"
    yield f"rack        {broker.rack or '-'}"
    yield f"version     {_version_text(broker.release, _kafkad(configs))}"
    yield f"partitions  {broker.partitions}, leads {broker.leaders}{lag}"
    for directory in directories:
        size = size_text(sum(replica.size for replica in directory.replicas))
        free = "-" if directory.free is None else size_text(directory.free)
        state = f"  {directory.error.what}" if directory.error else ""
        yield f"directory   {directory.path}  {size}, {free} free{state}"
    for entry in configs:
        if entry.is_default:
            continue
        yield f"config      {entry.name} {with_unit(entry.name, entry.shown)} ({entry.source})"
    yield ""
