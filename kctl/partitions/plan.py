"""`kctl partitions plan` and `drain`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from fnmatch import fnmatchcase
from functools import update_wrapper
from typing import Any, NamedTuple, TypeVar

import click

from kafkad.names import TopicPartition
from kctl.command.choosing import unknown
from kctl.command.cluster_names import broker_ids, topic_names
from kctl.command.paths import files
from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.errors import Exit, KctlError
from kctl.partitions.apply import rollback_of, write_plan
from kctl.partitions.cluster_model import BALANCES, RACKS, Goal, Partition
from kctl.partitions.effect import Effect, effects, rack_losses, seconds
from kctl.partitions.placement import Move, planned_moves
from kctl.partitions.plan_entries import WAITING, PlanEntry
from kctl.partitions.plan_lock import held
from kctl.partitions.plan_throttle import StateFile
from kctl.partitions.reassignment_json import Place, parse_plan, parse_topics
from kctl.partitions.snapshot import Snapshot, take
from kctl.reach.session import Session
from kctl.texts.output import Column, Document, Row, Writer, counted, duration_text, keep_writing, note, size_text
from kctl.texts.parsing import LARGEST_INT16, parse_rate
from kctl.texts.spelling import command, spelled
from kctl.texts.text_files import text_of

R = TypeVar("R")

COLUMNS = (
    Column("topic", "The topic."),
    Column("partition", "The number of the partition.", "number", header="PART"),
    Column("now", "Its replicas, the one that should lead first.", "list"),
    Column("planned_text", "Its replicas as planned.", header="PLANNED", shown=True),
    Column("planned", "Its replicas as planned; unknown if what is asked for is impossible.", "list", machine=True),
    Column("copy", "How much is copied, and from which broker to which.", shown=True),
    Column("copy_bytes", "Bytes to copy to new replicas, in all.", "number", machine=True),
    Column("copies", "Each copy as {from, to, bytes}.", machine=True),
    Column("why", "What asks for the move; if it is impossible, why."),
    Column("help", "What would make an impossible move possible.", machine=True),
)
_BROKERS = (
    Column("broker", "", "number"),
    Column("partitions", "", header="PARTITIONS"),
    Column("leaders", ""),
    Column("size", "", header="BYTES"),
    Column("incoming", "", "size", header="COPY IN"),
    Column("outgoing", "", "size", header="COPY OUT"),
    Column("free_after", "", "size", header="FREE AFTER"),
)


class PlanOptions(NamedTuple):
    """The options of plan and drain alike."""

    topics: tuple[str, ...]
    from_file: str | None
    to: tuple[int, ...]
    rf: int | None
    racks: str | None
    skip: bool
    rate: int | None
    file: str


def _broker_ids(context: click.Context, parameter: click.Parameter, value: Iterable[str]) -> tuple[int, ...]:
    """`--to 1,2 --to 3`."""
    words = [word for each in value for word in each.split(",")]
    try:
        return tuple(dict.fromkeys(int(word) for word in words))
    except ValueError:
        raise click.BadParameter(f'"{",".join(words)}" are not ids of brokers, as in 1,2') from None


def _asking(function: Callable[..., R]) -> Callable[..., R]:
    def command(
        *,
        topics: Sequence[str],
        from_file: str | None,
        to: tuple[int, ...],
        rf: int | None,
        rack_aware: str | None,
        skip: bool,
        throttle: str | None,
        file: str,
        **others: Any,
    ) -> R:
        names = tuple(word for each in topics for word in each.split(","))
        rate = None if throttle is None else parse_rate(throttle)
        return function(options=PlanOptions(names, from_file, to, rf, rack_aware, skip, rate, file), **others)

    decorated: Callable[..., R] = update_wrapper(command, function)
    for option in (
        click.option(
            "-f",
            "file",
            default="plan.json",
            show_default=True,
            shell_complete=files,
            metavar="FILE",
            help="The file to write.",
        ),
        click.option("--throttle", metavar="RATE", help="Estimate the time at this rate, as in 50MB/s."),
        click.option("--skip", is_flag=True, help="Leave out moves that are impossible."),
        click.option(
            "--rack-aware",
            type=click.Choice(RACKS),
            help="Whether replicas must, should or need not be in different racks.  [default: prefer]",
        ),
        click.option(
            "--rf",
            type=click.IntRange(1, LARGEST_INT16),
            metavar="N",
            help="Replication factor; when draining all topics, the most for what has to leave a broker.",
        ),
        click.option(
            "--to",
            multiple=True,
            metavar="BROKER,…",
            callback=_broker_ids,
            shell_complete=broker_ids,
            help="Brokers that may receive replicas.",
        ),
        click.option(
            "--from-file",
            shell_complete=files,
            metavar="FILE",
            help="A file of topics as Kafka's --generate reads it, or a plan to check.",
        ),
        click.option(
            "--topics", multiple=True, metavar="NAME|GLOB,…", shell_complete=topic_names, help="Only these topics."
        ),
    ):
        decorated = option(decorated)
    return decorated


@click.command("plan", cls=KctlCommand, columns=COLUMNS)
@click.option(
    "--drain",
    multiple=True,
    metavar="BROKER,…",
    callback=_broker_ids,
    shell_complete=broker_ids,
    help="Move all replicas away from these brokers.",
)
@click.option(
    "--balance", type=click.Choice(BALANCES), help="Balance brokers by leaders, number of replicas, or bytes."
)
@_asking
@pass_session
def plan_moves(session: Session, drain: tuple[int, ...], balance: str | None, options: PlanOptions) -> int:
    """Plan replica moves, and write the plan to a file.

    Moves as little as possible: a replica stays unless its broker is drained, another replica is in the same rack, or
    its place is needed. --to on its own moves all replicas of the topics there. The file has Kafka's own reassignment
    format, and a second file holds the way back. Nothing changes until kctl partitions apply. Exits with 7 if part of
    the plan is impossible.

    Example: kctl partitions plan --balance count --throttle 50MB/s
    """
    return _plan(session, frozenset(drain), balance, options)


@click.command("drain", cls=KctlCommand, columns=COLUMNS)
@click.argument("brokers", nargs=-1, required=True, metavar="BROKER…", callback=_broker_ids, shell_complete=broker_ids)
@_asking
@pass_session
def drain(session: Session, brokers: tuple[int, ...], options: PlanOptions) -> int:
    """Plan moving all replicas off brokers.

    The same as kctl partitions plan --drain: replicas on other brokers stay where they are.

    Example: kctl partitions drain 3 --throttle 50MB/s
    """
    return _plan(session, frozenset(brokers), None, options)


def _plan(session: Session, drained: frozenset[int], balance: str | None, options: PlanOptions) -> int:
    snapshot = take(session)
    _check_brokers(session, snapshot, drained, options)
    goal = Goal(
        drained,
        frozenset(options.to),
        options.rf,
        balance,
        options.racks or "prefer",
        repair_racks=_repairs(options.racks, drained, balance),
        topics=topics_chosen(options, snapshot.partitions),
    )
    if goal._replace(topics=None, racks="prefer") == Goal():
        places = _given(options)
        moves = _given_moves(places, options.from_file, snapshot)
    else:
        places = {}
        moves = planned_moves(snapshot.brokers, snapshot.partitions, goal)
    if options.skip:
        moves = [move for move in moves if move.planned is not None]
    writes = not session.settings.dry_run and any(move.planned is not None for move in moves)
    with _not_applied(session, options.file) if writes else nullcontext():
        sums = effects(snapshot.brokers, snapshot.partitions, moves)
        summary = _summary(_headline(goal), moves, sums, len(snapshot.partitions), options.rate)
        keep_writing()
        code = answer(
            session,
            COLUMNS,
            [_row(move) for move in moves],
            text=lambda: _text(session, summary, moves, sums),
            dry_run=session.settings.dry_run,
        )
        _warn(session, snapshot, moves, sums, goal)
        _write(session, options.file, moves, places)
    return code or (Exit.FINDINGS if any(move.planned is None for move in moves) else Exit.DONE)


def _repairs(racks: str | None, drained: frozenset[int], balance: str | None) -> bool:
    """True if replicas move for the sake of racks alone: when that was asked for, or everything is balanced."""
    if drained or racks == "off":
        return False
    return racks is not None or balance in ("count", "bytes")


def _check_brokers(session: Session, snapshot: Snapshot, drained: frozenset[int], options: PlanOptions) -> None:
    known = {broker.id for broker in snapshot.brokers}
    alive = snapshot.alive()
    if missing := sorted(drained - known):
        what = f"broker {', '.join(map(str, missing))} does not exist and has no replicas"
        raise KctlError(what, exit_code=Exit.NOT_FOUND, hints=(session.existing_brokers,))
    if dead := sorted(set(options.to) - alive):
        raise session.no_broker(dead)
    if both := sorted(drained & set(options.to)):
        what = f"broker {', '.join(map(str, both))} cannot be drained and receive replicas at the same time"
        raise KctlError(what, exit_code=Exit.USAGE)
    rackless = [broker.id for broker in snapshot.brokers if broker.alive and broker.rack is None]
    if options.racks == "strict" and rackless:
        what = f"broker {', '.join(map(str, rackless))} has no rack, so replicas cannot be spread over racks strictly"
        raise KctlError(what, exit_code=Exit.USAGE, hints=("--rack-aware prefer takes it for a rack of its own",))


def topics_chosen(options: PlanOptions, partitions: Iterable[Partition]) -> frozenset[str] | None:
    """A name with * or ? is a pattern: no topic is called so."""
    wanted = list(options.topics)
    if options.from_file:
        wanted += parse_topics(text_of(options.from_file), options.from_file)
    if not wanted:
        return None
    known = {partition.topic for partition in partitions}
    chosen: set[str] = set()
    for word in wanted:
        is_pattern = "*" in word or "?" in word
        found = {name for name in known if fnmatchcase(name, word)} if is_pattern else known & {word}
        if not found and is_pattern:
            raise KctlError(f'no topic matches "{word}"', exit_code=Exit.NOT_FOUND)
        if not found:
            raise unknown("topic", word, sorted(known))
        chosen |= found
    return frozenset(chosen)


def _given(options: PlanOptions) -> dict[TopicPartition, Place]:
    """A plan that was made elsewhere."""
    if options.from_file is None:
        hint = "--drain, --to, --rf, --balance or --rack-aware strict say what; --from-file shows a plan that is made"
        raise KctlError("the plan has no goal", exit_code=Exit.USAGE, hints=(hint,))
    return parse_plan(text_of(options.from_file), options.from_file).places


def _given_moves(places: Mapping[TopicPartition, Place], source: str | None, snapshot: Snapshot) -> list[Move]:
    partitions = snapshot.by_name()
    if missing := [where for where in places if where not in partitions]:
        raise KctlError(f"partition {missing[0]} of {source} does not exist", exit_code=Exit.NOT_FOUND)
    return [
        Move(partitions[where], place.replicas, ("as in the file",))
        for where, place in sorted(places.items())
        if partitions[where].replicas != place.replicas or place.directories()
    ]


# --- what it says


def _headline(goal: Goal) -> str:
    words = []
    if goal.drain:
        words.append(f"drain broker {','.join(map(str, sorted(goal.drain)))}")
    if goal.to:
        words.append(f"to broker {','.join(map(str, sorted(goal.to)))}")
    if goal.rf is not None:
        words.append(f"RF {goal.rf}")
    if goal.balance:
        words.append(f"balance {goal.balance}")
    return ", ".join(words) or "plan"


def _summary(headline: str, moves: Sequence[Move], sums: Sequence[Effect], partitions: int, rate: int | None) -> str:
    possible = [move for move in moves if move.planned is not None]
    size = sum(move.copy_bytes for move in possible)
    words = [f"{headline}: {len(possible)} of {partitions} partitions change", f"{size_text(size)} to copy"]
    if rate:
        words.append(f"about {duration_text(max(1000, int(seconds(sums, rate) * 1000)))} at {size_text(rate)}/s")
    if len(possible) < len(moves):
        words.append(f"{len(moves) - len(possible)} impossible")
    return ", ".join(words)


def _row(move: Move) -> Row:
    copies = move.copies
    sizes = f"{size_text(move.copy_bytes)} " + " ".join(f"{copy.source}->{copy.target}" for copy in copies)
    why = "; ".join(move.why)
    return {
        "topic": move.partition.topic,
        "partition": move.partition.partition,
        "now": list(move.partition.replicas),
        "planned": None if move.planned is None else list(move.planned),
        "planned_text": "IMPOSSIBLE" if move.planned is None else ",".join(map(str, move.planned)),
        "copy": sizes if copies else None,
        "copy_bytes": move.copy_bytes,
        "copies": [{"from": copy.source, "to": copy.target, "bytes": copy.size} for copy in copies],
        "why": why if not move.help or move.planned is not None else f"{why}: {move.help}",
        "help": move.help or None,
    }


def _text(session: Session, summary: str, moves: Sequence[Move], sums: Sequence[Effect]) -> Iterator[str]:
    settings = session.settings
    yield summary
    if moves:
        yield from Writer(settings, COLUMNS, Document(settings.command)).table([_row(move) for move in moves])
        yield ""
        brokers = Writer(settings, _BROKERS, Document(settings.command))
        yield from brokers.table([_broker_row(each) for each in sums], whole=True)


def _broker_row(each: Effect) -> Row:
    def change(before: int, after: int) -> str:
        return f"{before} -> {after}" if before != after else str(before)

    sizes = [size_text(size) for size in each.size]
    return {
        "broker": each.broker,
        "partitions": change(*each.partitions),
        "leaders": change(*each.leaders),
        "size": sizes[0] if sizes[0] == sizes[1] else " -> ".join(sizes),
        "incoming": each.incoming,
        "outgoing": each.outgoing,
        "free_after": each.free_after,
    }


def _warn(session: Session, snapshot: Snapshot, moves: Sequence[Move], sums: Sequence[Effect], goal: Goal) -> None:
    settings = session.settings
    for error in snapshot.silent:
        note(settings, f"warning: sizes are incomplete: {error.with_code}")
    if snapshot.active:
        note(settings, f"warning: {counted(len(snapshot.active), 'move')} under way; planned as if that were done")
    for topic, (now, then) in sorted(rack_losses(snapshot.brokers, moves).items()):
        note(settings, f"warning: {topic} would live in {then} racks instead of {now}")
    for each in sums:
        if each.free_after is not None and each.free_after < 0:
            note(settings, f"warning: broker {each.broker} has not enough room")


@contextmanager
def _not_applied(session: Session, path: str) -> Iterator[None]:
    """KctlError if a plan of this name has begun and not ended; none begins meanwhile."""
    with held(path):
        state = StateFile(path).path
        if os.path.exists(state):
            hints = (
                f"go on with it: {spelled(session.settings, command('partitions apply', path))}",
                f"call it off:   {spelled(session.settings, command('partitions cancel', path))}",
                "-f FILE writes this plan elsewhere",
            )
            raise KctlError(f"{path} is being applied: {state} exists", exit_code=Exit.REFUSED, hints=hints)
        yield


def _write(session: Session, path: str, moves: Sequence[Move], places: Mapping[TopicPartition, Place]) -> None:
    """The plan and the way back; neither if there is nothing to do. `places` are those of a plan that was given."""
    settings = session.settings
    possible = {move.partition.name: move for move in moves if move.planned is not None}
    if not possible:
        note(settings, "nothing to move, so no plan was written")
        return
    if settings.dry_run:
        note(settings, "dry run: no plan was written")
        return
    planned = {where: places.get(where, Place(move.planned or ())) for where, move in possible.items()}
    entries = [PlanEntry(move.partition, planned[where], WAITING, None, {}, {}) for where, move in possible.items()]
    rollback = rollback_of(path, entries, session)
    write_plan(path, planned, session)
    if not os.path.exists(rollback):
        write_plan(rollback, {each.partition.name: each.before for each in entries}, session)
    note(settings, f"wrote {path} (Kafka's reassignment format), {rollback}")
