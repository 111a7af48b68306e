"""`kctl groups zookeeper`: the groups of consumers that keep members and offsets in the metadata store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from kafkad.meta.consumer_znodes import GROUPS, Consumer, ConsumerOffset, Owner
from kctl.cluster.nodes import MetadataStore
from kctl.cluster.store import metadata_store, store_options
from kctl.command.choosing import Choice, choosing
from kctl.command.verb import KctlCommand, pass_session
from kctl.errors import exit_code
from kctl.reach.session import Session
from kctl.texts.output import Column, Document, Writer, note, render_errors

COLUMNS = (
    Column("group", "The group's name."),
    Column("topic", "A topic that it has read, or reads."),
    Column("partition", "One of its partitions.", "number"),
    Column("offset", "The next record that it would read.", "number"),
    Column("owner", "The member that reads it now."),
    Column("members", "All members that are alive, and the topics that each wants.", "list", wide=True),
)


@click.command("zookeeper", cls=KctlCommand, columns=COLUMNS)
@choosing("group")
@store_options
@pass_session
def zookeeper_groups(session: Session, chosen: Choice, zookeeper: str | None, data: str | None) -> int:
    """Show old groups that keep offsets and members in ZooKeeper.

    Consumers before Kafka 0.9 worked this way, and OffsetCommit version 0 still does; a kafkad without ZooKeeper keeps
    such groups in its own metadata store. Brokers do not list these groups. To move one to Kafka, stop its members and
    copy its offsets to the group of the same name that new clients will join:

    \b
        kctl groups zookeeper billing -o json > billing.json
        kctl groups reset-offsets billing --from-file billing.json

    Example: kctl groups zookeeper billing
    """
    with metadata_store(session, zookeeper, data) as store:
        names, errors = chosen.of(store.children(GROUPS) or [])
        rows = [row for name in names for row in rows_of(store, name)]
    Writer(session.settings, COLUMNS, Document(session.settings.command)).write(rows, errors)
    for name in dict.fromkeys(row["group"] for row in rows if row["members"]):
        note(session.settings, f'group "{name}" has members that are alive: stop them before its offsets are moved')
    render_errors(errors, session.settings)
    return exit_code(errors)


def rows_of(store: MetadataStore, group: str) -> Iterator[dict[str, Any]]:
    """One for each partition with an offset or an owner; one for a group that has neither."""
    offsets = {where: _number(data) for where, data in _leaves(store, ConsumerOffset.parent(group))}
    owners = {where: _owner(data) for where, data in _leaves(store, Owner.parent(group))}
    members = list(_members(store, group))
    for topic, partition in sorted(offsets.keys() | owners.keys()) or [(None, None)]:
        yield {
            "group": group,
            "topic": topic,
            "partition": partition,
            "offset": offsets.get((topic, partition)),
            "owner": owners.get((topic, partition)),
            "members": members,
        }


def _leaves(store: MetadataStore, parent: str) -> Iterator[tuple[tuple[Any, Any], bytes]]:
    """The data of a topic's partitions below `parent`."""
    for topic in store.children(parent) or ():
        for partition in store.children(f"{parent}/{topic}") or ():
            node = store.node(f"{parent}/{topic}/{partition}")
            if node is not None and partition.isdecimal():
                yield (topic, int(partition)), node.data


def _number(data: bytes) -> int | None:
    try:
        return ConsumerOffset.decode(data)
    except ValueError:  # anybody may write there
        return None


def _owner(data: bytes) -> str:
    try:
        return Owner.decode(data)[0]
    except ValueError:
        return data.decode(errors="backslashreplace")


def _members(store: MetadataStore, group: str) -> Iterator[str]:
    for member in store.children(Consumer.parent(group)) or ():
        node = store.node(Consumer.path(group, member))
        if node is not None:
            yield f"{member}: {_wanted(node.data)}"


def _wanted(data: bytes) -> str:
    try:
        return ",".join(Consumer.decode(data).subscription)
    except (ValueError, LookupError, AttributeError, TypeError):
        return data.decode(errors="backslashreplace")
