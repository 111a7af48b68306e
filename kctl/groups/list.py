"""`kctl groups list`."""

from __future__ import annotations

from typing import Any

import click

from kctl.command.choosing import Choice, choosing
from kctl.command.cluster_names import group_names, topic_names
from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.groups.group import CLASSIC, NEW
from kctl.groups.group_lag import GroupLag, chosen_groups, lags_of_groups, missed_groups, note_unknown, unknown_lags
from kctl.groups.partition_lag import total
from kctl.reach.session import Session
from kctl.texts.output import Column, Row

COLUMNS = (
    Column("group", "The group's name."),
    Column("state", "Stable, Empty, or what its rebalance waits for.", "state"),
    Column("type", "classic, or consumer for the protocol of KIP-848."),
    Column("members", "How many it has.", "number"),
    Column("topics", "Topics that it reads: committed, assigned or subscribed.", "list"),
    Column("lag", "Records not yet read, those of partitions without a commit included.", "number"),
    Column("coordinator", "The broker that coordinates it.", "number"),
    Column("partitions", "Partitions that it has committed or assigned.", "number", wide=True),
    Column("uncommitted", "Assigned partitions without a commit.", "number", wide=True),
    Column("unknown", "Partitions whose end is not known: nor is the lag then.", "number", wide=True),
    Column("protocol", "The assignor.", wide=True),
)


@click.command("list", cls=KctlCommand, columns=COLUMNS, watchable=True)
@choosing("group", group_names)
@click.option("--state", "states", multiple=True, metavar="STATE", help="Only groups in this state, such as Empty.")
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Only groups of this type: classic or consumer.")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC",
    shell_complete=topic_names,
    help="Only groups that read this topic.",
)
@click.option("--lagging", type=click.IntRange(min=0), metavar="N", help="Only groups with a lag of more than N.")
@pass_session
def list_groups(
    session: Session,
    chosen: Choice,
    states: tuple[str, ...],
    types: tuple[str, ...],
    topics: tuple[str, ...],
    lagging: int | None,
) -> int:
    """List groups with their state and lag.

    Lag covers every partition that the group has committed or is assigned; where nothing is committed, all records
    count. If an end cannot be read, the lag is not known: with --lagging such groups are listed too, and the exit code
    is 4. It is also 4 where groups are missing whose coordinator cannot be asked, with --lagging or for programs, as
    with -o json; and with --lagging 5 where there may be groups that you may not see. Names need no list.

    Example: kctl groups list --topic orders --lagging 1000
    """
    wanted_states = {state.lower() for state in states}
    wanted_types = {kind.lower() for kind in types}

    def is_wanted(state: str, kind: str) -> bool:
        return (not states or state.lower() in wanted_states) and (not types or kind in wanted_types)

    found = chosen_groups(session, chosen)
    listed = found.listed or {}
    unwanted = {one.name for one in listed.values() if one.state and not is_wanted(one.state, one.type)}
    found = found._replace(names=[name for name in found.names if name not in unwanted])
    group_lags, errors = lags_of_groups(session, found)
    errors += missed_groups(session, found.silent, decides=lagging is not None)
    rows = [
        row
        for row in map(_row, group_lags.values())
        if is_wanted(row["state"], row["type"])
        and (not topics or not set(topics).isdisjoint(row["topics"]))
        and (lagging is None or row["unknown"] or (row["lag"] or 0) > lagging)
    ]
    if lagging is None:
        note_unknown(session, group_lags)
    else:
        errors += unknown_lags(group_lags)
    return answer(session, COLUMNS, rows, errors)


def _row(group_lag: GroupLag) -> Row:
    group = group_lag.group
    lag = total(group_lag.lags)
    row: dict[str, Any] = {
        "group": group.name,
        "state": group.state,
        "type": group.type,
        "members": len(group.members) if group.type in (CLASSIC, NEW) else None,
        "topics": sorted(group_lag.topics),
        "lag": lag.lag if group.commits else None,
        "coordinator": group.coordinator,
        "partitions": lag.partitions,
        "uncommitted": lag.uncommitted,
        "unknown": lag.unknown,
        "protocol": group.protocol or None,
    }
    return row
