"""`kctl groups members`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from kctl.command.choosing import Choice, choosing
from kctl.command.cluster_names import group_names
from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.groups.group import Group, labels
from kctl.groups.group_lag import chosen_groups, lags_of_groups, missed_groups, note_unknown
from kctl.groups.other_protocols import with_other_protocols
from kctl.groups.partition_lag import PartitionLag, by_member, total
from kctl.groups.partitions_text import partitions_text
from kctl.reach.session import Session
from kctl.texts.output import Column, Row

MEMBER_COLUMNS: tuple[Column, ...] = (
    Column("group", "The group's name."),
    Column("member", "Its instance, or its client with as much of its id as tells it from the others."),
    Column("host", "Where it is."),
    Column("partitions", "How many it has assigned.", "number"),
    Column("lag", "Records not yet read of these.", "number"),
    Column("topics", "What it subscribed to.", "list"),
    Column("assignment", "What it has."),
    Column("instance", "The instance of a static member.", wide=True),
    Column("client", "The name that its client gives.", wide=True),
    Column("epoch", "KIP-848: the epoch that it has come to.", "number", wide=True),
    Column("target", "KIP-848: what it shall have, where that is something else.", wide=True),
    Column("member_id", "Its whole id.", wide=True),
    Column("assigned", "Its partitions, one by one.", "list", machine=True),
)


@click.command("members", cls=KctlCommand, columns=MEMBER_COLUMNS, watchable=True)
@choosing("group", group_names, required=True)
@pass_session
def group_members(session: Session, chosen: Choice) -> int:
    """List the members of groups, and what each reads.

    Example: kctl groups members billing -o wide
    """
    found = chosen_groups(session, chosen)
    group_lags, errors = lags_of_groups(session, found)
    group_lags, unseen = with_other_protocols(session, group_lags)
    errors += unseen + missed_groups(session, found.silent)
    note_unknown(session, group_lags)
    rows = [row for group_lag in group_lags.values() for row in member_rows(group_lag.group, group_lag.lags)]
    columns = MEMBER_COLUMNS
    if session.settings.output == "name":  # what rebalance --member takes
        columns = tuple(column for column in columns if column.name == "member_id")
    return answer(session, columns, rows, errors)


def member_rows(group: Group, lags: Sequence[PartitionLag]) -> list[Row]:
    names = labels(group.members)
    held = by_member(lags)
    rows: list[Row] = []
    for member in group.members:
        moving = member.target is not None and set(member.target) != set(member.assigned)
        rows.append(
            {
                "group": group.name,
                "member": names[member.id],
                "host": member.host,
                "partitions": len(member.assigned),
                "lag": total(held.get(member.id, ())).lag,
                "topics": list(member.topics),
                "assignment": partitions_text(member.assigned) or None,
                "instance": member.instance,
                "client": member.client,
                "epoch": member.epoch,
                "target": partitions_text(member.target or ()) or "nothing" if moving else None,
                "member_id": member.id,
                "assigned": [str(where) for where in sorted(member.assigned)],
            }
        )
    return sorted(rows, key=lambda row: str(row["member"]))
