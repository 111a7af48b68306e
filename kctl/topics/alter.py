"""`kctl topics alter`."""

from __future__ import annotations

import click

from kctl.command.changes import Change
from kctl.command.choosing import Choice, choosing
from kctl.command.chosen import chosen_topics
from kctl.command.cluster_names import topic_names
from kctl.command.verb import KctlCommand, pass_session
from kctl.configs.change import ReadingBack, described_before, plan_all, undo_command
from kctl.configs.resources import Resource, altered
from kctl.configs.values import DELETE, Assignment, parse_assignments
from kctl.errors import Exit, KctlError
from kctl.reach.session import Session
from kctl.texts.output import Column, Row, note
from kctl.texts.parsing import LARGEST_INT32
from kctl.topics.add_partitions import check_growth, grow, have_grown

COLUMNS = (
    Column("topic", "The topic's name."),
    Column("what", "partitions, or the name of a setting."),
    Column("current", "As it is."),
    Column("new", "As it will be; null: the default."),
    Column("effect", "What follows from it."),
)


@click.command("alter", cls=KctlCommand, columns=COLUMNS)
@choosing("topic", topic_names, required=True)
@click.option(
    "-p", "--partitions", type=click.IntRange(1, LARGEST_INT32), metavar="N", help="The new total number of partitions."
)
@click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting to change; += and -= edit lists; repeatable.",
)
@click.option("--unset", multiple=True, metavar="NAME", help="A setting to reset to its default; repeatable.")
@pass_session
def alter(
    session: Session, chosen: Choice, partitions: int | None, configs: tuple[str, ...], unset: tuple[str, ...]
) -> int:
    """Change partitions and settings of topics together.

    Example: kctl topics alter orders -p 12 --config retention.ms=7d
    """
    changes = parse_assignments(configs) + [Assignment(name, DELETE, None) for name in unset]
    if partitions is None and not changes:
        raise KctlError("say what to change: -p, --config or --unset", exit_code=Exit.USAGE)
    topics, errors = chosen_topics(session, chosen)
    counts, wrong = check_growth({name: len(topic.partitions) for name, topic in topics.items()}, partitions)
    errors += wrong
    found, wrong = described_before(session, [Resource("topic", name) for name in counts] if changes else [], changes)
    planned, sent, more = plan_all(found, changes)
    errors += [*wrong, *more]
    refused = altered(session, sent, validate_only=True) if sent else {}
    planned = {resource: rows for resource, rows in planned.items() if resource not in refused}
    counts = {name: count for name, count in counts.items() if not changes or Resource("topic", name) in planned}
    growing = {name: partitions for name, count in counts.items() if partitions is not None and count < partitions}
    unable = grow(session, growing, validate_only=True)
    errors += [*refused.values(), *unable.values()]
    growing = {name: count for name, count in growing.items() if name not in unable}
    planned = {resource: rows for resource, rows in planned.items() if resource.name not in unable}
    rows = [row for own in planned.values() for row in own]
    change = Change(session, COLUMNS, _rows(counts, growing, rows), errors)
    if not growing and not any(row["changes"] for row in rows):
        if rows or counts.keys() - unable.keys():
            note(session.settings, "nothing to do: it is so already")
        return change.done()
    if not change.confirmed("Apply?"):
        return change.code
    failed = grow(session, growing, validate_only=False)
    refused = (
        altered(session, {resource: sent[resource] for resource in planned}, validate_only=False) if planned else {}
    )
    made = [resource for resource in planned if resource not in refused]
    reading = ReadingBack(session, rows, made, changes)
    return change.done(
        errors=[*failed.values(), *refused.values()],
        verified="read back",
        seen=lambda: have_grown(session, growing) and reading.is_so(),
        different=reading.different,
        undo=undo_command(session.settings, {resource: found[resource] for resource in made}, changes),
    )


def _rows(counts: dict[str, int], growing: dict[str, int], planned: list[Row]) -> list[Row]:
    warning = "records of a key may go to another partition than before; this cannot be undone"
    grown = [
        {"topic": name, "what": "partitions", "current": str(counts[name]), "new": str(count), "effect": warning}
        for name, count in growing.items()
    ]
    settings = [
        {
            "topic": row["resource"].removeprefix("topic/"),
            "what": row["name"],
            "current": row["current_shown"],
            "new": row["new_shown"],
            "effect": row["effect"],
        }
        for row in planned
    ]
    return [*grown, *settings]
