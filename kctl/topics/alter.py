"""`kctl topics alter`."""

from __future__ import annotations

import click

from kctl.changes import Change
from kctl.choosing import Choice, choosing
from kctl.command import KctlCommand
from kctl.completing import topic_names
from kctl.configs.change import is_so, plan, undo_command
from kctl.configs.resources import Resource, altered, described
from kctl.configs.values import DELETE, Assignment, parse_assignments
from kctl.errors import Exit, KctlError
from kctl.output import Column, Row, note
from kctl.session import Session, pass_session
from kctl.topics.add_partitions import check_growth, grow, have_grown
from kctl.topics.chosen import chosen_topics

COLUMNS = (
    Column("topic", "The topic's name."),
    Column("what", "partitions, or the name of a setting."),
    Column("current", "As it is."),
    Column("new", "As it will be; null: the default."),
    Column("effect", "What follows from it."),
)


@click.command("alter", cls=KctlCommand, columns=COLUMNS)
@choosing("topic", topic_names, required=True)
@click.option("-p", "--partitions", type=click.IntRange(min=1), metavar="N", help="How many there shall be in all.")
@click.option("--config", "configs", multiple=True, metavar="NAME=VALUE", help="A setting; += and -= for lists.")
@click.option("--unset", multiple=True, metavar="NAME", help="A setting that goes back to its default.")
@pass_session
def alter(
    session: Session, chosen: Choice, partitions: int | None, configs: tuple[str, ...], unset: tuple[str, ...]
) -> int:
    """Change partitions and settings of topics in one go.

    Example: kctl topics alter orders -p 12 --config retention.ms=7d
    """
    changes = parse_assignments(configs) + [Assignment(name, DELETE, None) for name in unset]
    if partitions is None and not changes:
        raise KctlError("say what to change: -p, --config or --unset", exit_code=Exit.USAGE)
    topics, errors = chosen_topics(session, chosen)
    for error in errors:
        raise error
    counts = {name: len(topic.partitions) for name, topic in topics.items()}
    check_growth(counts, partitions or max(counts.values()))
    growing = {name: partitions for name, count in counts.items() if partitions is not None and count < partitions}
    resources = [Resource("topic", name) for name in topics] if changes else []
    found, errors = described(session, resources, synonyms=True)
    planned = [row for resource in resources for row in plan(resource, found[resource], changes)]
    wanted = dict.fromkeys(resources, changes)
    errors += altered(session, wanted, validate_only=True) + grow(session, growing, validate_only=True)
    for error in errors:
        raise error
    change = Change(session, COLUMNS, _rows(counts, growing, planned))
    if not growing and not any(row["changes"] for row in planned):
        note(session.settings, "nothing to do: it is so already")
        return change.done()
    if not change.confirmed("Apply?"):
        return Exit.DONE
    refused = grow(session, growing, validate_only=False) + altered(session, wanted, validate_only=False)
    if refused:
        return change.done(errors=refused)
    return change.done(
        verified="read back",
        seen=lambda: have_grown(session, growing) and is_so(session, planned, resources),
        undo=undo_command(found, changes),
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
