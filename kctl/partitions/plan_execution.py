"""Executes a plan on a cluster, batch by batch, and watches each batch until its replicas are in place.

Nothing here depends on this process: moves and throttles live in the cluster, so that another run can go on with them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition
from kctl.errors import Exit, KctlError
from kctl.partitions.copy_progress import Amount, Copying, CopyProgress, Report, progress_line, stall_reason
from kctl.partitions.plan_entries import DONE, MOVING, WAITING, PlanEntry, located, plan_entry
from kctl.partitions.plan_throttle import PlanThrottle
from kctl.partitions.reassignment_json import Place
from kctl.partitions.requests import begin_moves, by_topic, choose_directories, elect_leaders
from kctl.partitions.snapshot import Snapshot, take
from kctl.reach.log_dirs import replica_sizes
from kctl.reach.session import Session
from kctl.texts.progress import ProgressLine

R = TypeVar("R")

_LOOK_SECONDS = 1.0
_SETTLE_SECONDS = 10.0
"""Brokers hear of the end of a move one after another; until then one may still tell of the old replicas."""
_PATIENCE_SECONDS = 60.0
"""Longest time without any answer from the cluster before watching ends; the moves go on."""


class PlanStatus(NamedTuple):
    """The state of a plan at one moment."""

    snapshot: Snapshot
    entries: list[PlanEntry]

    @property
    def missing(self) -> int:
        return sum(each.state != DONE for each in self.entries)


def plan_status(session: Session, places: Mapping[TopicPartition, Place]) -> PlanStatus:
    """The state of a plan's partitions; those that do not exist are left out."""
    return _judged(take(session, by_topic(places)), places)


def under_way(session: Session) -> PlanStatus:
    """All moves, between brokers or between directories of one, no matter who started them."""
    snapshot = take(session)
    places = {where: Place(active.target) for where, active in snapshot.active.items()}
    partitions = snapshot.by_name()
    for (where, broker), path in located(snapshot.directories, future=True).items():
        if where in partitions:
            place = places.get(where, Place(partitions[where].replicas))
            places[where] = place.with_directory(broker, path)
    return _judged(snapshot, places)


def _judged(snapshot: Snapshot, places: Mapping[TopicPartition, Place]) -> PlanStatus:
    here, coming = located(snapshot.directories), located(snapshot.directories, future=True)
    entries = [
        plan_entry(partition, places[partition.name], snapshot.active.get(partition.name), here, coming)
        for partition in snapshot.partitions
        if partition.name in places
    ]
    return PlanStatus(snapshot, entries)


def to_elect(entries: Iterable[PlanEntry]) -> dict[TopicPartition, int]:
    """The first replica of each partition that is in place, and led by another one."""
    return {
        each.partition.name: each.place.replicas[0]
        for each in entries
        if each.state == DONE and each.partition.leader != each.place.replicas[0]
    }


class PlanExecution:
    def __init__(
        self,
        session: Session,
        places: Mapping[TopicPartition, Place],
        plan_throttle: PlanThrottle,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._session = session
        self.places = places
        self._plan_throttle = plan_throttle
        self._clock = clock
        self._sleep = sleep
        self._shown = ProgressLine(session.settings, clock)
        self._progress = CopyProgress()
        self._entries: dict[TopicPartition, PlanEntry] = {}
        """As they were last seen: what does not move now is not looked at."""
        self._stalled: set[Copying] = set()
        self._answered = clock()

    def run(self, size: int, *, pause_if_urp: bool) -> list[KctlError]:
        """Everything, `size` partitions at a time; what the cluster refused."""
        seen = self._seen(self.places)
        errors: list[KctlError] = []
        try:
            moving = {each.partition.name for each in seen.entries if each.state == MOVING}
            self._follow(moving, "")
            waiting = [each for each in seen.entries if each.state not in (DONE, MOVING)]
            count = -(-len(waiting) // size)
            for number in range(count):
                if pause_if_urp:
                    self._wait_until_replicated()
                batch = waiting[number * size : (number + 1) * size]
                refused = self._patiently(partial(self.begin, batch))
                errors += refused.values()
                begun = {each.partition.name for each in batch} - set(refused)
                self._follow(begun, f"batch {number + 1}/{count}")
        finally:
            self._shown.clear()
        return errors

    def begin(self, batch: Sequence[PlanEntry]) -> dict[TopicPartition, KctlError]:
        """Log directories first: a replica that is not there yet is then created in the right one."""
        paths = {replica: path for each in batch for replica, path in each.directories.items()}
        refused = {replica.partition: error for replica, error in choose_directories(self._session, paths).items()}
        moves = {
            each.partition.name: each.place.replicas
            for each in batch
            if each.partition.name not in refused and each.place.replicas != each.partition.replicas
        }
        return refused | (begin_moves(self._session, moves) if moves else {})

    def elect(self) -> dict[TopicPartition, KctlError]:
        """Has the first replica of each partition lead."""
        return elect_leaders(self._session, to_elect(plan_status(self._session, self.places).entries))

    # --- watching

    def _follow(self, names: Collection[TopicPartition], label: str) -> None:
        """Returns when none of these moves any more."""
        still_since = None
        while names:
            seen = self._patiently(partial(self._look, names))
            if all(each.state == DONE for each in seen.entries):
                return
            self._tell(seen, label)
            if any(each.state == MOVING for each in seen.entries):
                still_since = None
            elif still_since is None:
                still_since = self._clock()
            elif self._clock() - still_since >= _SETTLE_SECONDS:
                return  # somebody cancelled it; the last look says so
            self._sleep(_LOOK_SECONDS)

    def _look(self, names: Iterable[TopicPartition]) -> PlanStatus:
        self._plan_throttle.catch_up()
        return self._seen({where: self.places[where] for where in names})

    def _seen(self, places: Mapping[TopicPartition, Place]) -> PlanStatus:
        seen = plan_status(self._session, places)
        for where in places:
            self._entries.pop(where, None)
        self._entries |= {each.partition.name: each for each in seen.entries}
        return seen

    def _patiently(self, action: Callable[[], R]) -> R:
        """Again and again while nobody answers: a broker that dies is no reason to leave the others alone."""
        while True:
            try:
                result = action()
            except KctlError as error:
                if not _passes(error) or self._clock() - self._answered >= _PATIENCE_SECONDS:
                    raise
                self._shown.show("no answer: {}".format, error.what)
                self._sleep(_LOOK_SECONDS)
            else:
                self._answered = self._clock()
                return result

    def _tell(self, seen: PlanStatus, label: str) -> None:
        """All of the plan, of which `seen` is what moves."""
        amounts = copies(seen)
        begun = {each.partition for each in amounts}
        entries = self._entries.values()
        to_come = sum(each.copy_bytes for each in entries if each.state == WAITING and each.partition.name not in begun)
        report = self._progress.observe(self._clock(), amounts, to_come)
        moving = sum(each.state == MOVING for each in entries)
        done = sum(each.state == DONE for each in entries)
        self._tell_stalled(seen, report, amounts)
        self._shown.show(progress_line, report, label, moving, done, self._plan_throttle.rate)

    def _tell_stalled(self, seen: PlanStatus, report: Report, amounts: Mapping[Copying, Amount]) -> None:
        partitions = seen.snapshot.by_name()
        for copy in report.stalled:
            if copy not in self._stalled:
                alive = copy.target in seen.snapshot.alive()
                reason = stall_reason(alive, partitions[copy.partition].leader, amounts[copy], self._plan_throttle.rate)
                self._shown.say(f"stalled: {copy} has not grown for a minute: {reason}")
        self._stalled = set(report.stalled)

    def _wait_until_replicated(self) -> None:
        """Waits until every replica that should be in sync is."""
        while behind := self._patiently(lambda: under_replicated(self._session)):
            self._shown.show("waiting: {} partitions are under-replicated".format, behind)
            self._sleep(_LOOK_SECONDS)


def _passes(error: KctlError) -> bool:
    """True if the error is temporary: it ends when a broker is back, or another one is the controller."""
    return error.exit_code == Exit.UNREACHABLE or error.code == ErrorCode.NOT_CONTROLLER.name


def copies(seen: PlanStatus) -> dict[Copying, Amount]:
    """Progress of every new replica that is being filled: its bytes, out of those of its leader."""
    sizes = replica_sizes(seen.snapshot.directories)
    amounts: dict[Copying, Amount] = {}
    for each in seen.entries:
        name, size = each.partition.name, each.partition.size
        if each.active:
            amounts |= {
                Copying(name, broker): Amount(sizes.get((name, broker), 0), size) for broker in each.active.adding
            }
    wanted = {each.partition.name: each.partition.size for each in seen.entries if each.state == MOVING}
    for directory in seen.snapshot.directories:
        for replica in directory.replicas:
            name = TopicPartition(replica.topic, replica.partition)
            if replica.future and name in wanted:
                amounts[Copying(name, replica.broker)] = Amount(replica.size, wanted[name])
    return amounts


def under_replicated(session: Session) -> int:
    return sum(
        len(partition.isr_nodes) < len(partition.replica_nodes)
        for topic in session.metadata()
        for partition in topic.partitions
    )
