"""`kctl copy`."""

from __future__ import annotations

import copy as copying
import time
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

import click

from kafkad.wire.compression import CODEC_NAMES
from kctl.command.choosing import Choice
from kctl.command.chosen import chosen_topics
from kctl.command.cluster_names import topic_names
from kctl.command.verb import KctlCommand, pass_session
from kctl.errors import Exit, KctlError
from kctl.reach.session import Session, open_session
from kctl.records.delivery import COLUMNS, Delivery, Wishes, transaction_options
from kctl.records.filters import wanted
from kctl.records.following import Additions, Growth, Unreached
from kctl.records.formats import Parsed
from kctl.records.interrupts import Interrupts
from kctl.records.offset_ranges import parse_range, partitions_to_read, spans
from kctl.records.searching import Chunk, Search
from kctl.texts.output import note
from kctl.texts.spelling import hints_for, spelled_for


@click.command("copy", cls=KctlCommand, columns=COLUMNS, may_be_empty=("key", "value"))
@click.argument("source", shell_complete=topic_names)
@click.argument("target", shell_complete=topic_names)
@click.option("--to-context", metavar="NAME", help="Copy to the cluster of this context.")
@click.option(
    "--from",
    "start",
    metavar="WHERE",
    help="earliest, latest, @TIME, OFFSET or -N (before the end).  [default: earliest]",
)
@click.option("--to", "stop", metavar="WHERE", help="Likewise, exclusive.  [default: the current end]")
@click.option("-n", "--count", type=click.IntRange(min=1), metavar="N", help="Stop after N records.")
@click.option("--follow", is_flag=True, help="Continue with new records until Ctrl-C.")
@click.option("--partitions", metavar="0,3-5", help="Only from these partitions.")
@click.option("--key", metavar="GLOB", help="Only keys that match.")
@click.option("--value", metavar="GLOB", help="Only values that match.")
@click.option(
    "--header", "headers", multiple=True, metavar="NAME=GLOB", help="Only records with such a header; repeatable."
)
@click.option("--grep", metavar="RE", help="Only records whose value or key contains this regular expression.")
@click.option("--filter", "expression", metavar="EXPR", help="Only records for which this holds: see kctl consume.")
@click.option(
    "--committed/--uncommitted",
    default=True,
    help="Copy only committed records, up to the first open transaction; or those of all transactions, as if they were "
    "committed.",
    show_default=True,
)
@click.option("--keep-partition", is_flag=True, help="Copy each record to the partition of the same number.")
@click.option(
    "--partitioner", metavar="HOW", default="sticky", help="sticky, round-robin, or module:callable.", show_default=True
)
@click.option(
    "--compression", type=click.Choice(CODEC_NAMES), default="none", help="Compression of batches.", show_default=True
)
@transaction_options
@pass_session
def copy(session: Session, /, source: str, target: str, **options: Any) -> int:
    """Copy the records of one topic to another, here or on another cluster.

    Keys, values, headers and timestamps are kept. Without --keep-partition, the key decides the partition, as in the
    Java producer. A damaged batch is skipped, and an error names its offsets.

    Example: kctl copy orders orders --to-context staging --from @-1h
    """
    settings = session.settings
    if source == target and not options["to_context"]:
        raise KctlError("source and target are the same topic", exit_code=Exit.USAGE)
    now_ms = time.time_ns() // 1_000_000
    limits = parse_range(options, now_ms, settings.utc)
    filters = {name: options[name] for name in ("key", "value", "headers", "grep", "expression")}
    test = wanted(**filters, now_ms=now_ms, utc=settings.utc)
    chosen = Choice("topic", [source], (), (), takes_patterns=False)
    topics, errors = chosen_topics(session, chosen)
    if errors:
        raise errors[0]
    partitions = partitions_to_read(topics, options["partitions"], None)
    with ExitStack() as stack:
        there = _target(session, options["to_context"], stack)
        interrupts = stack.enter_context(Interrupts())
        delivery = stack.enter_context(Delivery(there, target, _wishes(options), interrupts, "offset"))
        count = options["count"] or settings.limit
        search = Search(
            session,
            test,
            committed=limits.committed,
            count=count,
            asked_to_stop=lambda: interrupts.asked,
            follow=limits.follow,
        )
        with hints_for(settings):
            found, search.failed = spans(session, partitions, limits)
            unreached = Unreached(lambda left: spans(session, left, limits), search.failed, search.tell)
            if limits.follow and found:
                unreached.look_for(search.failed)
            follows = limits.follow and not options["partitions"]
            added = Additions(session, Growth(session, chosen, topics), limits, partitions) if follows else dict
            chunks = search.forward(found, lambda: {**added(), **unreached()})
            errors = _copy(there, delivery, chunks, flush=limits.follow)
        if test is not None:
            note(settings, search.told())
        errors += search.errors
        if errors:
            delivery.finish(commit=False)  # of a transaction, not a part either
        return delivery.report([spelled_for(settings, error.with_hint(delivery.told())) for error in errors])


def _copy(there: Session, delivery: Delivery, chunks: Iterable[Chunk], *, flush: bool) -> list[KctlError]:
    """Copies until there are no more records, or they cannot be sent."""
    try:
        for chunk in chunks:
            with hints_for(there.settings):
                _send(delivery, chunk)
                if flush:
                    delivery.flush()
            if delivery.over:
                break
    except KctlError as error:
        return [error]
    return []


def _target(session: Session, context: str | None, stack: ExitStack) -> Session:
    """The session of the target, for whose cluster hints are until the stack ends."""
    if context is None:
        return session
    settings = copying.copy(session.settings)
    settings.context, settings.bootstrap, settings.command_config, settings.extra = context, "", "", {}
    stack.enter_context(hints_for(settings))
    there = open_session(settings)
    stack.callback(there.close)
    return there


def _wishes(options: dict[str, Any]) -> Wishes:
    return Wishes(
        keep_partition=options["keep_partition"],
        partitioner=options["partitioner"],
        codec=CODEC_NAMES.index(options["compression"]),
        transactional_id=options["transactional_id"],
        transaction_timeout_ms=options["transaction_timeout"],
    )


def _send(delivery: Delivery, chunk: Chunk) -> None:
    for record in chunk.records:
        parsed = Parsed(record.key, record.value, record.headers, record.timestamp, chunk.partition)
        try:
            delivery.send(parsed, record.offset)
        except ValueError as error:
            what = f"offset {record.offset} of {chunk.topic}-{chunk.partition} {error}"
            raise KctlError(what, hints=("leave out --keep-partition, or add partitions",)) from None
