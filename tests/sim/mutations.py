"""Rules of replication that are broken on purpose, one at a time, to see that the simulation finds each.

A mutation is a function that makes the patch under which a whole run takes place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from kafkad.api import fetch
from kafkad.broker import leave_isr
from kafkad.controller import active, brokers, loading
from kafkad.controller.active import ActiveController
from kafkad.controller.election import Elected
from kafkad.controller.isr import Isr
from kafkad.errors import ErrorCode
from kafkad.log.epochs import LeaderEpochs
from kafkad.log.log import Log
from kafkad.replica import isr as rules
from kafkad.replica.fetchers import Fetchers
from kafkad.replica.following import Following
from kafkad.replica.leading import Leading
from kafkad.replica.lost_tails import LostTails
from kafkad.replica.manager import ReplicaManager
from kafkad.replica.partition import Partition
from tests.sim.faults import Focus

Mutation = Callable[[], AbstractContextManager[Any]]
ALL: dict[str, Mutation] = {}
FOCUS: dict[str, Focus] = {}
"""Of those that hardly any run of all faults shows."""


def mutation(make: Mutation) -> Mutation:
    ALL[make.__name__] = make
    return make


def shown_by(focus: Focus) -> Callable[[Mutation], Mutation]:
    """A mutation that is looked for in runs with this focus."""

    def note(make: Mutation) -> Mutation:
        FOCUS[make.__name__] = focus
        return mutation(make)

    return note


# -- the leader's watermark and ISR ------------------------------------------------------------------------------------


@mutation
def watermark_is_the_end_of_the_leaders_log() -> Any:
    return patch.object(rules, "high_watermark", lambda now_at, leader_end, *rest: leader_end)


@mutation
def watermark_may_fall() -> Any:
    def lowest(now_at: int, leader_end: int, maximal: Any, followers: Any, joining: Any = ()) -> int:
        return min([leader_end, *(followers[b].end_offset for b in {*maximal, *joining} if b in followers)])

    def advance(self: Any, offset: int) -> None:
        self.high_watermark = max(offset, 0)
        self._tell_watchers()
        while self.commit_waits and self.commit_waits[0][0] <= self.high_watermark:
            self.when_committed(*self.commit_waits.popleft())

    return both(patch.object(rules, "high_watermark", lowest), patch.object(Partition, "raise_high_watermark", advance))


@mutation
def a_pending_shrink_counts_as_written() -> Any:
    def maximal(self: Leading) -> frozenset[int]:
        return frozenset(self.isr if self.proposed is None else self.proposed)

    def high_watermark(self: Leading, now_at: int, end_offset: int, *rest: Any) -> int:
        return rules.high_watermark(now_at, end_offset, maximal(self), self.followers)

    return patch.object(Leading, "high_watermark", high_watermark)


@mutation
def followers_join_wherever_they_are() -> Any:
    return patch.object(rules, "may_join", lambda *what: True)


@mutation
def a_new_leader_takes_its_followers_for_caught_up() -> Any:
    def begun(before: Any, in_sync: bool, leader_end: int, now_ms: float) -> rules.Follower:
        return rules.Follower(end_offset=leader_end, caught_up_ms=now_ms, fetched_ms=now_ms, leader_end=leader_end)

    def fetched(known: rules.Follower, offset: int, *rest: Any) -> rules.Follower:
        return true_fetched(known, max(offset, known.end_offset), *rest)

    true_fetched = rules.fetched
    return both(patch.object(rules, "begun", begun), patch.object(rules, "fetched", fetched))


@mutation
def the_leader_changes_its_isr_without_the_controller() -> Any:
    def propose(self: Any, isr: tuple[int, ...] | None) -> None:
        if isr is not None and self.leading is not None:
            self.leading.isr = isr
            self.role = replace(self.role, isr=isr)
            self._settle()
            self._advance()

    return patch.object(Partition, "_propose", propose)


@mutation
def acks_all_is_answered_at_the_append() -> Any:
    def when_committed(self: Any, end: int, on_committed: Any) -> None:
        on_committed(None)

    return patch.object(Partition, "when_committed", when_committed)


@mutation
def what_waits_for_a_deposed_leader_is_called_committed() -> Any:
    refuse_waits = Partition._refuse_waits

    def refuse(self: Any) -> None:
        while self.commit_waits:
            self.commit_waits.popleft()[1](None)
        refuse_waits(self)

    return patch.object(Partition, "_refuse_waits", refuse)


@mutation
def consumers_read_to_the_end_of_the_log() -> Any:
    def visible(self: Any, read_committed: bool) -> tuple[int, int, int]:
        end = self.log.end_offset
        return end, end, end

    return patch.object(Partition, "visible", visible)


# -- followers ---------------------------------------------------------------------------------------------------------


@mutation
def followers_truncate_to_their_watermark() -> Any:
    true_begin = Following.begin

    def begin(self: Any) -> None:
        true_begin(self)
        self._cut(self._partition.high_watermark)

    return patch.object(Following, "begin", begin)


@mutation
def followers_keep_a_tail_that_the_leader_never_had() -> Any:
    return patch.object(fetch, "diverging", lambda *what: None)


@mutation
def followers_take_the_watermark_as_it_comes() -> Any:
    true_append = Following.append

    def append(self: Any, records: Any, high_watermark: int, start_offset: int) -> None:
        self._partition.high_watermark = max(self._partition.high_watermark, high_watermark)
        true_append(self, records, high_watermark, start_offset)

    return patch.object(Following, "append", append)


@mutation
def followers_do_not_fetch_anew_in_a_new_epoch_of_the_same_leader() -> Any:
    true_follow = Fetchers.follow

    def follow(self: Any, changed: Any) -> None:
        true_follow(self, [p for p in changed if p not in self._fetched_by or p.role.leader != _leader_of(self, p)])

    def _leader_of(self: Any, partition: Any) -> int:
        return self._fetched_by[partition]._leader

    return patch.object(Fetchers, "follow", follow)


@mutation
def the_log_forgets_where_leader_epochs_begin() -> Any:
    def assign(self: Any, epoch: int, start: int) -> None:
        if not self.entries:
            true_assign(self, epoch, start)

    true_assign = LeaderEpochs.assign
    return patch.object(LeaderEpochs, "assign", assign)


@mutation
def leader_epochs_outlive_the_records_that_are_cut_off() -> Any:
    return patch.object(LeaderEpochs, "truncate_from_end", lambda self, offset: None)


@mutation
def followers_do_not_note_sequences_of_producers() -> Any:
    true_write = Log._write_copied

    def write(self: Any, view: Any, pending: Any) -> None:
        with patch.object(Log, "_note_producer", lambda *what: None):
            true_write(self, view, pending)

    return patch.object(Log, "_write_copied", write)


# -- epochs ------------------------------------------------------------------------------------------------------------


@shown_by(Focus.LATE)
def a_stale_leader_and_isr_is_taken() -> Any:
    true_apply = ReplicaManager._apply_state

    def apply(self: Any, topic: Any, state: Any, *more: Any) -> ErrorCode:
        known = self.find(topic.topic_name, state.partition_index)
        if known is not None:
            known.leader_epoch = min(known.leader_epoch, state.leader_epoch - 1)
        return true_apply(self, topic, state, *more)

    return both(patch.object(ReplicaManager, "_apply_state", apply), _brokers_take_any_request())


def _brokers_take_any_request() -> Any:
    return patch.object(ReplicaManager, "_refuse", lambda self, controller_epoch, broker_epoch: ErrorCode.NONE)


@shown_by(Focus.LATE)
def alter_partition_ignores_all_epochs() -> Any:
    def current(self: Any, tp: Any, wanted: Any) -> Any:
        state = self._state.entry(tp).state
        if state is None:
            return wanted
        return replace(wanted, partition_epoch=state.partition_epoch, leader_epoch=state.leader_epoch)

    true_present = Isr._present

    def present(self: Any, leader: int, tp: Any, wanted: Any) -> Any:
        state = self._state.entry(tp).state
        return true_present(self, state.leader if state else leader, tp, current(self, tp, wanted))

    true_alter = Isr.alter

    async def alter(self: Any, broker: int, broker_epoch: int, wanted: Any) -> Any:
        known = self._state.brokers.get(broker)
        return await true_alter(self, broker, known.epoch if known else broker_epoch, wanted)

    return both(
        patch.object(Isr, "_present", present),
        both(patch.object(Isr, "alter", alter), patch.object(Isr, "_check_members", lambda *what: None)),
    )


@mutation
def an_election_does_not_begin_a_leader_epoch() -> Any:
    true_state = Elected.state

    def state(self: Elected, before: Any, controller_epoch: int) -> Any:
        return replace(true_state(self, before, controller_epoch), leader_epoch=before.leader_epoch)

    return patch.object(Elected, "state", state)


# -- the controller ----------------------------------------------------------------------------------------------------


@mutation
def elections_are_unclean_by_accident() -> Any:
    true_after = active.after_failure  # type: ignore[attr-defined]
    return patch.object(active, "after_failure", lambda *what, unclean, **more: true_after(*what, unclean=True, **more))


@mutation
def elections_do_not_look_at_the_isr() -> Any:
    def first(replicas: Any, state: Any, live: Any, **more: Any) -> Elected | None:
        alive = [replica for replica in replicas if replica in live]
        return (
            Elected(alive[0], tuple({alive[0]: 0, **dict.fromkeys(r for r in state.isr if r in live)}))
            if alive
            else None
        )

    return patch.object(active, "after_failure", first)


@mutation
def the_last_one_leaves_the_isr() -> Any:
    true_repaired = ActiveController.repaired

    def repaired(self: Any, tp: Any, entry: Any, preference: Any = None) -> Any:
        state = true_repaired(self, tp, entry, preference)
        return state and replace(state, isr=tuple(r for r in state.isr if self.state.online(r, tp)))

    return patch.object(ActiveController, "repaired", repaired)


@mutation
def the_watch_of_the_brokers_is_set_once() -> Any:
    seen: set[int] = set()
    true_read = brokers.read_brokers

    async def read(lead: Any, watch: Any, on_written: Any) -> Any:
        first = id(lead) not in seen
        seen.add(id(lead))
        return await true_read(lead, watch if first else lambda event: None, on_written)

    return both(patch("kafkad.controller.term.read_brokers", read), patch.object(brokers, "read_brokers", read))


@mutation
def a_broker_that_has_registered_anew_is_taken_for_the_one_before() -> Any:
    true_changed = brokers.Brokers.changed

    async def changed(self: Any, now: Any) -> Any:
        before = self._state.brokers
        same = {id_: replace(info, epoch=before[id_].epoch) if id_ in before else info for id_, info in now.items()}
        return await true_changed(self, same)

    return patch.object(brokers.Brokers, "changed", changed)


# -- disks and brokers that come back ----------------------------------------------------------------------------------


@shown_by(Focus.DISKS)
def a_new_controller_does_not_see_who_has_registered_since() -> Any:
    return patch.object(loading, "returned_members", lambda *what: frozenset())


@mutation
def a_replica_without_its_tail_leads() -> Any:
    async def stay(*what: Any) -> None:
        pass

    return both(patch.object(LostTails, "may_take", lambda *what: True), patch.object(leave_isr, "leave_isrs", stay))


@shown_by(Focus.DISKS)
def a_replica_leads_that_is_gone_with_its_disk() -> Any:
    async def none(*what: Any) -> dict[Any, Any]:
        return {}

    return patch.object(leave_isr, "gone_replicas", none)


@shown_by(Focus.DISKS)
def a_log_keeps_what_is_behind_a_lost_end_of_a_file() -> Any:
    return patch.object(Log, "whole_until", property(lambda self: self.end_offset))


# -- what consumers are told -------------------------------------------------------------------------------------------


@mutation
def a_new_leader_says_where_the_log_ends_before_it_knows() -> Any:
    return patch.object(Partition, "check_high_watermark", lambda self: None)


# -- what only some schedules show -------------------------------------------------------------------------------------


@shown_by(Focus.LATE)
def followers_join_by_the_watermark_of_the_last_leader() -> Any:
    """Without having come as far as the log was when the epoch began."""
    true_may_join = rules.may_join
    return patch.object(
        rules, "may_join", lambda follower, mark, epoch_start, lag: true_may_join(follower, mark, 0, lag)
    )


@contextmanager
def both(one: AbstractContextManager[Any], other: AbstractContextManager[Any]) -> Iterator[None]:
    with one, other:
        yield
