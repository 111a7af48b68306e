"""`kctl topics add-partitions`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from kctl.command.changes import Change
from kctl.command.choosing import Choice, choosing
from kctl.command.chosen import chosen_topics
from kctl.command.cluster_names import topic_names
from kctl.command.verb import KctlCommand, pass_session
from kctl.errors import Exit, KctlError, failure
from kctl.reach.session import Session
from kctl.texts.output import Column, note
from kctl.texts.parsing import LARGEST_INT32

if TYPE_CHECKING:
    from kafkad.wire.messages.metadata import MetadataResponseTopic

COLUMNS = (
    Column("topic", "The topic's name."),
    Column("current", "Its partitions now.", "number"),
    Column("new", "Its partitions afterwards.", "number"),
    Column("added", "How many are added.", "number"),
)


@click.command("add-partitions", cls=KctlCommand, columns=COLUMNS)
@choosing("topic", topic_names, required=True)
@click.option(
    "-p",
    "--partitions",
    type=click.IntRange(1, LARGEST_INT32),
    required=True,
    metavar="N",
    help="The new total number of partitions.",
)
@pass_session
def add_partitions(session: Session, chosen: Choice, partitions: int) -> int:
    """Add partitions to topics.

    New records of a key may go to a different partition than older ones, so ordering by key is lost across the change.
    Partitions cannot be removed again.

    Example: kctl topics add-partitions orders -p 12
    """
    topics, errors = chosen_topics(session, chosen)
    counts, shrinking = check_growth({name: len(topic.partitions) for name, topic in topics.items()}, partitions)
    growing = {name: partitions for name, count in counts.items() if count < partitions}
    refused = grow(session, growing, validate_only=True)
    counts = {name: count for name, count in counts.items() if name not in refused}
    growing = {name: count for name, count in growing.items() if name not in refused}
    rows = [
        {"topic": name, "current": count, "new": partitions, "added": partitions - count}
        for name, count in counts.items()
    ]
    change = Change(session, COLUMNS, rows, [*errors, *shrinking, *refused.values()])
    if not growing:
        if counts:
            note(session.settings, f"nothing to do: there are {partitions} already")
        return change.done()
    note(session.settings, "records of a key written from now on may go to another partition than those before")
    if not change.confirmed("Add partitions? They cannot be taken away again."):
        return change.code
    refused = grow(session, growing, validate_only=False)
    return change.done(
        errors=list(refused.values()),
        verified="all brokers know the new partitions",
        seen=lambda: have_grown(session, growing),
    )


def check_growth(counts: Mapping[str, int], wanted: int | None) -> tuple[dict[str, int], list[KctlError]]:
    """The topics that can have so many partitions (None: any), and why the others cannot."""
    larger = {name: count for name, count in counts.items() if wanted is not None and count > wanted}
    errors = [
        KctlError(
            f'topic "{name}" has {count} partitions; {wanted} would remove data, which Kafka cannot do',
            exit_code=Exit.USAGE,
            code="INVALID_PARTITIONS",
        )
        for name, count in larger.items()
    ]
    return {name: count for name, count in counts.items() if name not in larger}, errors


def grow(session: Session, counts: Mapping[str, int], *, validate_only: bool) -> dict[str, KctlError]:
    """Asks for these numbers of partitions in all; the topics for which it was refused, and why."""
    from kafkad.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic

    if not counts:
        return {}
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in counts.items()],
        timeout_ms=session.broker_timeout_ms,
        validate_only=validate_only,
    )
    answer = session.ask_controller(request, lambda answer: (result.error_code for result in answer.results))
    return {
        result.name: failure(
            result.error_code, f'topic "{result.name}"', result.error_message, changes=not validate_only
        )
        for result in answer.results
        if result.error_code
    }


def have_grown(session: Session, counts: Mapping[str, int]) -> bool:
    from kafkad.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

    def grown(topic: MetadataResponseTopic) -> bool:
        led = [partition for partition in topic.partitions if partition.leader_id >= 0]
        return topic.name is not None and len(led) >= counts[topic.name]

    if not counts:
        return True
    asked = [MetadataRequestTopic(name=name) for name in counts]
    answers = session.ask_all(MetadataRequest(topics=asked, allow_auto_topic_creation=False))
    return bool(answers) and all(grown(topic) for answer in answers for topic in answer.topics)
