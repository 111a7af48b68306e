"""`kctl partitions apply`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import update_wrapper
from itertools import chain, count, takewhile
from typing import Any, Literal, NamedTuple, TypeVar

import click

from kafkad.names import TopicPartition
from kctl.command.changes import Change
from kctl.command.paths import files
from kctl.command.verb import KctlCommand, pass_session
from kctl.errors import Exit, KctlError, exit_code
from kctl.partitions.plan_entries import DONE, ELSEWHERE, WAITING, PlanEntry
from kctl.partitions.plan_execution import PlanExecution, PlanStatus, plan_status, to_elect
from kctl.partitions.plan_lock import held
from kctl.partitions.plan_throttle import PlanThrottle, StateFile
from kctl.partitions.reassignment_json import Place, Plan, parse_plan, render_plan
from kctl.partitions.requests import Active, active_moves, by_topic
from kctl.partitions.throttle_settings import CHANGED
from kctl.reach.session import Session
from kctl.settings import Settings
from kctl.texts.output import Column, Row, counted, note, size_text
from kctl.texts.spelling import command, spelled
from kctl.texts.text_files import text_of, write

R = TypeVar("R")

COLUMNS = (
    Column("topic", "The topic."),
    Column("partition", "The number of the partition.", "number", header="PART"),
    Column("now", "Its replicas as they are; those that a move is bringing do not count.", "list"),
    Column("planned", "Its replicas as the plan wants them.", "list"),
    Column("copy_bytes", "Bytes to copy to new replicas, in all.", "size", header="COPY"),
    Column("state", "done, moving, waiting, or moving elsewhere: to other replicas than those of the plan.", "state"),
    Column("leader", "The broker that leads it.", "number", wide=True),
    Column("log_dirs", "The log directory for each replica; any: the broker chooses.", "list", wide=True),
    Column("new_leader", "When nothing is left to move: the replica that is elected.", "number", machine=True),
    *(column._replace(machine=True) for column in CHANGED),
)
_FINISHING = tuple(
    column._replace(wide=False, machine=False) for column in COLUMNS if column.name not in ("copy_bytes", "log_dirs")
)
"""Those of a run that moves nothing more."""


class Options(NamedTuple):
    """The options of carrying out a plan; `rate` is in bytes a second."""

    rate: int | None = None
    batch: int = 20
    pause_if_urp: bool = False
    wait: bool = True
    additional: bool = False
    elect: bool = True


def execution_options(function: Callable[..., R]) -> Callable[..., R]:
    """Those of every command that moves replicas; the command gets them as one value named `options`."""
    from kctl.texts.parsing import parse_rate

    def command(
        *,
        throttle: str | None,
        batch: int,
        pause_if_urp: bool,
        no_wait: bool,
        additional: bool,
        no_elect: bool,
        **others: Any,
    ) -> R:
        rate = None if throttle is None else parse_rate(throttle)
        return function(options=Options(rate, batch, pause_if_urp, not no_wait, additional, not no_elect), **others)

    decorated: Callable[..., R] = update_wrapper(command, function)
    for option in (
        click.option("--no-elect", is_flag=True, help="Do not elect the preferred leaders at the end."),
        click.option("--additional", is_flag=True, help="Allow it while other moves are under way."),
        click.option("--no-wait", is_flag=True, help="Start all moves at once and do not watch them."),
        click.option("--pause-if-urp", is_flag=True, help="Start no batch while partitions are under-replicated."),
        click.option(
            "--batch",
            type=click.IntRange(min=1),
            default=20,
            show_default=True,
            help="Number of partitions to move at a time.",
        ),
        click.option(
            "--throttle", metavar="RATE", help="Replication throttle of each broker in bytes per second, as in 50MB/s."
        ),
    ):
        decorated = option(decorated)
    return decorated


@click.command("apply", cls=KctlCommand, columns=COLUMNS)
@click.argument("file", shell_complete=files, metavar="PLAN.JSON")
@execution_options
@pass_session
def apply(session: Session, file: str, options: Options) -> int:
    """Apply a plan, and watch its progress.

    PLAN.JSON is a file written by kctl partitions plan, or any reassignment file of Kafka's own tool. Running it again
    resumes where the last run stopped, and changes the throttle if another one is given. Ctrl-C only stops watching:
    moves under way continue. At the end, throttles are restored and the preferred replicas become leaders. Two kctl
    do not work on one plan at a time.

    Example: kctl partitions apply plan.json --throttle 50MB/s
    """
    with held(file):
        return carry_out(session, file, read_plan(file), options)


def read_plan(path: str) -> Plan:
    return parse_plan(text_of(path), path)


def carry_out(
    session: Session, path: str, plan: Plan, options: Options, *, save: bool = False, unable: Sequence[KctlError] = ()
) -> int:
    """`save`: the plan has no file yet; it gets one, called `path` or nearly so, for another run to go on with. The
    caller holds the file of any other. `unable`: what of all that was asked for cannot be done, and so is not in the
    plan."""
    return _carry_out(session, path, plan, options, save=save, unable=unable) or exit_code(unable)


def _carry_out(
    session: Session, path: str, plan: Plan, options: Options, *, save: bool, unable: Sequence[KctlError]
) -> int:
    seen = plan_status(session, plan.places)
    _check(session, plan, seen, options)
    path = unused(path) if save else path
    plan_throttle = PlanThrottle(session, StateFile(path), options.rate)
    if not seen.missing:
        note(session.settings, "every replica is in its place already")
        return _only_finish(session, plan, seen, plan_throttle, path, options, unable)
    change = Change(session, COLUMNS, [row(each) for each in seen.entries], unable)
    size = size_text(sum(each.copy_bytes for each in seen.entries if each.state != DONE))
    if not change.confirmed(f"Move {counted(seen.missing, 'partition')}, copying {size}?"):
        return Exit.DONE
    with ExitStack() as alone:
        with change.preparing():
            if save:
                path = save_plan(path, plan.places, session)
                alone.enter_context(held(path))
                plan_throttle = PlanThrottle(session, StateFile(path), options.rate)
                note(session.settings, f"wrote {path}")
            rollback = rollback_of(path, seen.entries, session)
            _write_rollback(rollback, seen.entries, session)
        try:
            down = plan_throttle.put_on([each.transfer for each in seen.entries if each.state != DONE])
            if down:
                note(session.settings, f"broker {_listed(down)} is down: its throttle is set when it is back")
            execution = PlanExecution(session, plan.places, plan_throttle)
            if not options.wait:
                return _begin_all(session, execution, seen, path, change.untold)
            errors = execution.run(options.batch, pause_if_urp=options.pause_if_urp)
            return _finish(session, execution, plan_throttle, path, rollback, options, errors, change.untold)
        except KeyboardInterrupt:
            _tell_how_to_go_on(session.settings, path, plan_throttle)
            return Exit.INTERRUPTED
        except KctlError:
            leave_in_order(session, path, plan, plan_throttle)
            raise


def _only_finish(
    session: Session,
    plan: Plan,
    seen: PlanStatus,
    plan_throttle: PlanThrottle,
    path: str,
    options: Options,
    unable: Sequence[KctlError],
) -> int:
    """What is left of a plan whose replicas are all in place: a change like any other, if it is anything."""
    leaders = to_elect(seen.entries) if options.elect else {}
    if leaders or plan_throttle.is_set:
        rows = [{**row(each), "new_leader": leaders.get(each.partition.name)} for each in seen.entries]
        slowing = plan_throttle.rows()
        change = Change(session, _FINISHING if session.settings.is_text else COLUMNS, [*rows, *slowing], unable)
        left = [f"elect {counted(len(leaders), 'preferred leader')}"] if leaders else []
        left += [f"put back {counted(len(slowing), 'throttle setting')}"] if plan_throttle.is_set else []
        if not change.confirmed(f"{' and '.join(left).capitalize()}?"):
            return change.code
        unable = change.untold
    execution = PlanExecution(session, plan.places, plan_throttle)
    rollback = rollback_of(path, seen.entries, session)
    options = options._replace(elect=bool(leaders))
    return _finish(session, execution, plan_throttle, path, rollback, options, [], unable)


def row(each: PlanEntry) -> Row:
    return {
        "topic": each.partition.topic,
        "partition": each.partition.partition,
        "now": list(each.now),
        "planned": list(each.place.replicas),
        "copy_bytes": each.copy_bytes if each.state != DONE else 0,
        "state": each.state,
        "leader": each.partition.leader,
        "log_dirs": list(each.place.log_dirs),
    }


# --- before


def _check(session: Session, plan: Plan, seen: PlanStatus, options: Options) -> None:
    """A KctlError if the plan does not fit the cluster."""
    cluster = session.cluster
    if plan.cluster_id and plan.cluster_id != cluster.cluster_id:
        what = f"the plan was made for cluster {plan.cluster_id}, but this is {cluster.cluster_id}"
        raise KctlError(what, exit_code=Exit.REFUSED)
    there = seen.snapshot.by_name()
    if missing := [where for where in plan.places if where not in there]:
        what = f"partition {_listed(missing)} of the plan does not exist"
        raise KctlError(what, exit_code=Exit.NOT_FOUND, hints=("kctl partitions list shows those that do",))
    to_come = {broker for each in seen.entries if each.state != DONE for broker in each.added}
    if dead := sorted(to_come - set(cluster.brokers)):
        absent = session.absent(dead)
        what = f"the plan assigns replicas to broker {_listed(absent.worst)}, which {absent.state}"
        if any(each.active is None for each in seen.entries if set(each.added) & set(dead)):
            raise KctlError(what, exit_code=absent.exit_code, hints=(session.existing_brokers,))
    if not options.additional:
        refuse_foreign(active_moves(session), seen.entries)


def refuse_foreign(active: Mapping[TopicPartition, Active], entries: Iterable[PlanEntry]) -> None:
    """A KctlError if something moves that the plan knows nothing of."""
    mine = {each.partition.name for each in entries if each.state != ELSEWHERE}
    foreign = [where for where in sorted(active) if where not in mine]
    if foreign:
        raise KctlError(
            f"other moves are under way: {_listed(foreign)}",
            exit_code=Exit.REFUSED,
            hints=("kctl partitions status shows them", "--additional begins this plan beside them"),
        )


def _listed(things: Sequence[object], most: int = 5) -> str:
    words = ", ".join(map(str, things[:most]))
    return words if len(things) <= most else f"{words} (+{len(things) - most})"


def write_plan(
    path: str, places: Mapping[TopicPartition, Place], session: Session, mode: Literal["w", "x"] = "w"
) -> None:
    write(path, render_plan(places, session.cluster.cluster_id), mode)


def save_plan(path: str, places: Mapping[TopicPartition, Place], session: Session) -> str:
    """The path of the plan's file, which is new: another kctl may have been started in the same second."""
    while True:
        path = unused(path)
        with suppress(FileExistsError):
            write_plan(path, places, session, "x")
            return path


def unused(path: str) -> str:
    """The path, or one with a number that no rollback file has, where a plan or what is left of its throttle has it."""
    stem, extension = os.path.splitext(path)
    names = chain([path], (f"{stem}_{number}{extension}" for number in count(2)))
    return next(name for name in names if not os.path.lexists(name) and not os.path.lexists(StateFile(name).path))


_BACK = "rollback-"


def rollback_path(path: str) -> str:
    """The path of the rollback file; the rollback of a rollback is the original file."""
    directory, name = os.path.split(path)
    return os.path.join(directory, name.removeprefix(_BACK) if name.startswith(_BACK) else _BACK + name)


def rollback_of(path: str, entries: Sequence[PlanEntry], session: Session) -> str:
    """The path of this plan's rollback file: the last one if it leads back, or a new one. Others, of earlier plans that
    had the same name, are left alone."""
    stem, extension = os.path.splitext(rollback_path(path))
    taken = list(takewhile(os.path.lexists, (_numbered(stem, extension, number) for number in count(1))))
    if taken and _leads_back(taken[-1], entries, session.cluster.cluster_id or ""):
        return taken[-1]
    return _numbered(stem, extension, len(taken) + 1)


def _numbered(stem: str, extension: str, number: int) -> str:
    return f"{stem}{extension}" if number == 1 else f"{stem}-{number}{extension}"


def _leads_back(path: str, entries: Sequence[PlanEntry], cluster_id: str) -> bool:
    """True if the file has the partitions of the plan, and those that have not begun to move as they are. A link
    to no file does not lead back."""
    try:
        back = read_plan(path)
    except (KctlError, FileNotFoundError):
        return False
    return (
        back.cluster_id in (None, "", cluster_id)
        and back.places.keys() == {each.partition.name for each in entries}
        and all(
            back.places[each.partition.name].replicas == each.before.replicas
            for each in entries
            if each.state == WAITING
        )
    )


def _write_rollback(rollback: str, entries: Iterable[PlanEntry], session: Session) -> None:
    """Unless there is one: of a first run that this one goes on with, or of kctl partitions plan."""
    if os.path.exists(rollback):
        return
    try:
        write_plan(rollback, {each.partition.name: each.before for each in entries}, session, "x")
    except FileExistsError as error:
        what = f"{rollback} is new: somebody else applies a plan of that name"
        raise KctlError(what, exit_code=Exit.REFUSED, hints=("nothing was moved; apply it again",)) from error
    note(session.settings, f"wrote {rollback}")


# --- after


def _begin_all(
    session: Session, execution: PlanExecution, seen: PlanStatus, path: str, unable: Sequence[KctlError]
) -> int:
    refused = execution.begin([each for each in seen.entries if each.state != DONE])
    after = plan_status(session, execution.places)
    change = Change(session, COLUMNS, [], unable)
    code = change.done([row(each) for each in after.entries], list(refused.values()))
    watch, finish = command("partitions status", path, options="--watch"), command("partitions apply", path)
    note(session.settings, f"watch:  {spelled(session.settings, watch)}")
    note(session.settings, f"finish: {spelled(session.settings, finish)}")
    return code


def _finish(
    session: Session,
    execution: PlanExecution,
    plan_throttle: PlanThrottle,
    path: str,
    rollback: str,
    options: Options,
    errors: list[KctlError],
    unable: Sequence[KctlError],
) -> int:
    """Reads back, takes the throttle off, has preferred leaders lead."""
    seen = plan_status(session, execution.places)
    if not errors:
        errors = [_not_done(each) for each in seen.entries if each.state != DONE]
    if any(each.active for each in seen.entries):
        errors.append(
            KctlError(
                "moves are still under way, so the throttle stays",
                hints=(f"kctl {command('partitions status', path)}",),
            )
        )
    else:
        errors += plan_throttle.take_off()
    if options.elect:
        for where, error in execution.elect().items():
            note(session.settings, f"{where}: its first replica does not lead: {error.with_code}")
    after = plan_status(session, execution.places)
    verified = f"the replicas of {counted(len(after.entries), 'partition')} are those of the plan"
    undo = spelled(session.settings, command("partitions apply", rollback)) if os.path.exists(rollback) else ""
    return Change(session, COLUMNS, [], unable).done(
        [row(each) for each in after.entries], errors, verified=verified, undo=undo
    )


def _not_done(each: PlanEntry) -> KctlError:
    now = ",".join(map(str, each.now))
    planned = ",".join(map(str, each.place.replicas))
    what = f"partition {each.partition.name} has the replicas {now} and not {planned}: its move was cancelled"
    return KctlError(what, hints=("kctl partitions apply moves it again",))


def leave_in_order(session: Session, path: str, plan: Plan, plan_throttle: PlanThrottle) -> None:
    """Leaves order after a failure: takes off the throttle if nothing moves, otherwise says what goes on. Moves that
    cannot be asked for may go on too."""
    try:
        moving = bool(active_moves(session, by_topic(plan.places)))
    except KctlError:
        moving = True
    if moving or plan_throttle.take_off():
        _tell_how_to_go_on(session.settings, path, plan_throttle)


def _tell_how_to_go_on(settings: Settings, path: str, plan_throttle: PlanThrottle) -> None:
    rate = plan_throttle.rate
    throttle = f", and the throttle of {size_text(rate)}/s stays" if rate is not None else ""
    print(f"interrupted: what moves goes on moving{throttle}", file=sys.stderr)
    for what, words in (
        ("watch:   ", command("partitions status", path, options="--watch")),
        ("resume:  ", command("partitions apply", path)),
        ("clean up:", command("partitions cancel", path)),
    ):
        print(f"       {what} {spelled(settings, words)}", file=sys.stderr)
