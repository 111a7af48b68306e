"""`kctl consume`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from typing import Any

import click

from kafkad.names import TopicPartition
from kctl.command.changes import confirm_typed
from kctl.command.choosing import Choice, choosing
from kctl.command.chosen import chosen_topics
from kctl.command.cluster_names import group_names, topic_names
from kctl.command.verb import KctlCommand, pass_session
from kctl.errors import Exit, KctlError, exit_code
from kctl.reach.session import Session
from kctl.records.bounds import Span
from kctl.records.filters import wanted
from kctl.records.following import Additions, Growth, Unreached
from kctl.records.offset_ranges import Range, extents, parse_range, partitions_to_read, spans
from kctl.records.printing import print_records, prints_values
from kctl.records.searching import Chunk, Search
from kctl.texts.output import Column, counted, note, render_errors

COLUMNS = (
    Column("topic", "Its topic.", wide=True),
    Column("partition", "Its partition.", "number", "PART"),
    Column("offset", "Its offset.", "number"),
    Column("timestamp_ms", "Its time.", "time", "TIME"),
    Column("key", 'Its key; bytes that are not UTF-8 as {"base64": …}.'),
    Column("value", "Its value, likewise; null is a tombstone."),
    Column("headers", "Its headers: key and value of each.", machine=True),
    Column("header_text", "Its headers.", header="HEADERS", shown=True, wide=True),
)


@click.command("consume", cls=KctlCommand, columns=COLUMNS, may_be_empty=("key", "value"))
@choosing("topic", complete=topic_names, required=True)
@click.option(
    "--from",
    "start",
    metavar="WHERE",
    help="earliest, latest, @TIME, OFFSET or -N (before the end).  [default: earliest; latest with --follow]",
)
@click.option("--to", "stop", metavar="WHERE", help="Likewise, exclusive.  [default: the current end]")
@click.option("-n", "--count", type=click.IntRange(min=1), metavar="N", help="Stop after N records.")
@click.option(
    "--last", type=click.IntRange(min=1), metavar="N", help="The last N records of all partitions, by timestamp."
)
@click.option("--follow", is_flag=True, help="Continue with new records, partitions and topics.")
@click.option("--partitions", metavar="0,3-5", help="Only these partitions.")
@click.option(
    "--key",
    metavar="GLOB",
    help="Only keys that match. One without * ? [ is looked for where Java's and librdkafka's producers put it, and if "
    "it is not there in all partitions.",
)
@click.option(
    "--all-partitions",
    is_flag=True,
    help="Look for an exact --key everywhere: the topic may have grown, or its producer its own partitioner.",
)
@click.option("--value", metavar="GLOB", help="Only values that match.")
@click.option(
    "--header", "headers", multiple=True, metavar="NAME=GLOB", help="Only records with such a header; repeatable."
)
@click.option("--grep", metavar="RE", help="Only records whose value or key contains this regular expression.")
@click.option(
    "--filter",
    "expression",
    metavar="EXPR",
    help='Only records for which this holds: value.amount > 100 and key ~ "^a".',
)
@click.option("--committed", is_flag=True, help="Read only committed records (read_committed).")
@click.option("--fail-empty", is_flag=True, help="Exit with 3 if no record was found.")
@click.option(
    "-f", "--format", "line_format", metavar="FORMAT", help="kcat's: %t %p %o %k %s %h %T %K %S %R and \\n \\t."
)
@click.option(
    "--group",
    metavar="NAME",
    shell_complete=group_names,
    help="Consume as a member of this group, and commit offsets.",
)
@click.option(
    "--assignor",
    default="range",
    metavar="HOW",
    help="range, roundrobin, sticky, cooperative-sticky or module:callable.",
    show_default=True,
)
@click.option("--instance", metavar="NAME", help="Join the group as this static member.")
@pass_session
def consume(session: Session, /, chosen: Choice, **options: Any) -> int:
    """Print records of topics, up to the current end or continuously.

    Prints one value per line; -o json prints each complete record as a line of JSON, -o wide prints a table. The
    numbers of records searched and matched go to standard error. Records come in the order in which they are read, so
    that there is no --sort.

    --follow checks every 5 seconds for added partitions and, with --match or --regex, for new topics, and reads those
    from their start, also as a member of a group.

    A damaged batch is skipped, and an error names its offsets. A member of a group stops before it and commits no
    further; the error has the command that moves the group past it.

    --filter expressions use key, value, headers.NAME, topic, partition, offset and timestamp (ms, compared with @TIME),
    fields of JSON (value.items[0].price), the operators == != < <= > >= ~ (regular expression), and, or, not and ( ).

    Example: kctl consume orders --from @-1h --filter 'value.amount > 100' -o json
    """
    settings = session.settings
    if settings.sort:
        what = "records are printed as they are read, in the order of their partition: leave out --sort"
        raise KctlError(what, exit_code=Exit.USAGE)
    now_ms = time.time_ns() // 1_000_000
    limits = parse_range(options, now_ms, settings.utc)
    filters = {name: options[name] for name in ("key", "value", "headers", "grep", "expression")}
    test = wanted(**filters, now_ms=now_ms, utc=settings.utc)
    topics, errors = chosen_topics(session, chosen)
    if not topics:
        raise errors[0]
    if options["group"]:
        _may_commit(session, options["group"])
    count = options["count"] or settings.limit
    plain = test is None and not (options["group"] or options["last"])
    plain = plain and prints_values(settings, options["line_format"])
    search = Search(
        session,
        test,
        committed=limits.committed,
        count=count,
        values_only=plain,
        follow=limits.follow,
        group=options["group"],
    )
    try:
        with closing(_chunks(session, search, Growth(session, chosen, topics), limits, options)) as chunks:
            print_records(settings, COLUMNS, options["line_format"], chunks)
    except KeyboardInterrupt:
        print(f"interrupted: {search.told()}", file=sys.stderr)
        render_errors([*errors, *search.errors], settings)
        return Exit.INTERRUPTED
    except KctlError as failed:
        errors.append(failed)
    if test is not None:
        note(settings, search.told())
    errors += search.errors
    render_errors(errors, settings)
    if errors:
        if search.searched:
            note(settings, f"{search.matched:,} records were printed")
        return exit_code(errors)
    return Exit.NOT_FOUND if options["fail_empty"] and not search.matched else Exit.DONE


def _may_commit(session: Session, group: str) -> None:
    """A member changes its group: it joins, and commits."""
    if session.settings.dry_run:
        what = "--dry-run changes nothing, and a member of a group commits: leave out --group"
        raise KctlError(what, exit_code=Exit.USAGE)
    if session.access.protected:
        label = session.access.label
        confirm_typed(f"Group {group} will commit offsets on {label}, which is protected.", label)


def _chunks(
    session: Session, search: Search, growth: Growth, limits: Range, options: dict[str, Any]
) -> Generator[Chunk]:
    key = None if options["all_partitions"] else options["key"]
    if options["group"]:
        if options["partitions"] or options["last"]:
            what = "with --group the group assigns partitions: leave out --partitions and --last"
            raise KctlError(what, exit_code=Exit.USAGE)
        from kctl.records.grouped import Membership, read_as_member

        membership = Membership(options["group"], options["assignor"], options["instance"])
        return read_as_member(session, search, growth, limits, membership)
    if options["last"] and (options["start"] or options["stop"] or options["follow"]):
        raise KctlError("--last stands alone: leave out --from, --to and --follow", exit_code=Exit.USAGE)
    return _searched(session, search, growth, limits, options, key)


def _searched(
    session: Session, search: Search, growth: Growth, limits: Range, options: dict[str, Any], key: str | None
) -> Generator[Chunk]:
    """Reads the partition in which the key belongs, then all others if it is not there."""
    partitions = partitions_to_read(growth.topics, options["partitions"], key)
    added = Additions(session, growth, limits, partitions, key) if limits.follow and not options["partitions"] else dict
    others = set(partitions_to_read(growth.topics, options["partitions"], None)) - set(partitions)
    if others:
        read = ", ".join(map(str, partitions)) or "none"
        note(session.settings, f"the key is looked for where producers put it by default: {read}")
    yield from _read(session, search, partitions, limits, options["last"], added)
    if others and not search.matched and not limits.follow:
        note(session.settings, f"it is not there: looking in the other {counted(len(others), 'partition')} too")
        yield from _read(session, search, sorted(others), limits, options["last"])


def _read(
    session: Session,
    search: Search,
    partitions: Sequence[TopicPartition],
    limits: Range,
    last: int | None,
    added: Callable[[], Mapping[TopicPartition, Span]] = dict,
) -> Generator[Chunk]:
    if last:
        known, failed = extents(session, partitions, limits.committed)
        search.failed |= failed
        return search.last(last, known)
    found, failed = spans(session, partitions, limits)
    search.failed |= failed
    unreached = Unreached(lambda left: spans(session, left, limits), search.failed, search.tell)
    if limits.follow and found:
        unreached.look_for(failed)
    return search.forward(found, lambda: {**added(), **unreached()})
