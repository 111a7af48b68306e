"""The state machine of one classic group: requests and the time go in, answers and records to be written come out.

Nothing here does I/O or knows a clock. The rules are Kafka 3.9's:

- A rebalance (PreparingRebalance) waits for every known member to join again, and for those who were given an id to
  use it, but not longer than the most patient member allows. Dynamic members that did not come are put out; static ones
  keep their place until their session ends. The first rebalance of an empty group waits for others to come.
- Everybody who joined is then told the generation, the leader also the members (CompletingRebalance). The leader's sync
  brings the assignment; it is written, and everybody who has asked for its part gets it (Stable). Who does not ask in
  time is put out.
- A generation is written twice: when it has an assignment, and when it is empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from math import inf
from typing import Self

from kafkad.errors import ErrorCode, KafkaError
from kafkad.group.deadlines import Deadlines
from kafkad.group.events import (
    Answer,
    Description,
    Effect,
    Join,
    Joined,
    Leaving,
    Moment,
    Note,
    Replaced,
    State,
    Sync,
    Synced,
    Write,
)
from kafkad.group.generation import Generation
from kafkad.group.members import Member
from kafkad.group.pending import PendingIds
from kafkad.group.records import GroupWritten
from kafkad.group.subscriptions import Subscriptions
from kafkad.names import some

PREVIOUS: Mapping[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.PREPARING}),
    State.PREPARING: frozenset({State.STABLE, State.COMPLETING, State.EMPTY}),
    State.COMPLETING: frozenset({State.PREPARING}),
    State.STABLE: frozenset({State.COMPLETING}),
    State.DEAD: frozenset({State.EMPTY, State.PREPARING, State.COMPLETING, State.STABLE}),
}

LEAST_PATIENCE_MS = 1000
"""Static members that allow no time at all for a rebalance, and do not come, must not keep the broker busy."""


NEW_MEMBER_TIMEOUT_MS = 300_000
"""A new member that waits in a join cannot send heartbeats; after this time it has to join again."""
_ENDED_AT_ONCE = 50
"""Members, and ids that nobody used: more may end together when a network is cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Those of group.*; the rebalance delay is the one of `group.initial.rebalance.delay.ms`."""

    rebalance_delay_ms: int
    min_session_timeout_ms: int
    max_session_timeout_ms: int
    max_size: int


class Group:
    """Everything that happens to a group goes through here; what it decides is returned, never done.

    `recorded`: the log has something of this group, or will have once a write ends: a deletion has to take it back.
    """

    __slots__ = (
        "_assigning",
        "_current",
        "_deadlines",
        "_effects",
        "_members",
        "_pending",
        "_refused",
        "_settings",
        "_unsynced",
        "name",
        "recorded",
        "state",
        "state_timestamp",
    )

    def __init__(self, name: str, settings: GroupSettings, state_timestamp: int) -> None:
        self.name = name
        self.state = State.EMPTY
        self.state_timestamp = state_timestamp
        self.recorded = False
        self._settings = settings
        self._current = Generation()
        self._members = self._current.members
        self._pending = PendingIds()
        self._unsynced: set[str] = set()
        """Members that have not asked for their assignment of this generation yet."""
        self._assigning = False
        self._refused = False
        """Its last write was. It begins over until one is not, and says nothing more of that."""
        self._deadlines = Deadlines()
        self._effects: list[Effect] = []

    @classmethod
    def restored(cls, record: GroupWritten, settings: GroupSettings) -> Self:
        """A group as the log has it: Stable if it has members, whatever else was going on."""
        group = cls(record.group, settings, record.state_timestamp)
        group.recorded = True
        group._current.restore(record)
        if record.members:
            group.state = State.STABLE
        return group

    def undeleted(self) -> Self:
        """A group like this one, whose deletion could not be written."""
        group = type(self)(self.name, self._settings, self.state_timestamp)
        group.recorded = self.recorded
        group._current.protocol_type = self.protocol_type
        group._current.number = self.generation
        group._current.subscriptions = self.subscriptions
        return group

    @property
    def size(self) -> int:
        return len(self._members)

    @property
    def is_nothing(self) -> bool:
        """It has no member, is to have none, and never had one."""
        return self.state is State.EMPTY and not self.generation and not self.recorded and not self._pending

    @property
    def generation(self) -> int:
        return self._current.number

    @property
    def protocol_type(self) -> str | None:
        return self._current.protocol_type

    @property
    def protocol(self) -> str | None:
        return self._current.protocol

    @property
    def is_consumer(self) -> bool:
        return self._current.is_consumer

    @property
    def subscriptions(self) -> Subscriptions:
        """What this generation consumes (KIP-211); the next one has others."""
        return self._current.subscriptions

    def describe(self) -> Description:
        stable = self.state is State.STABLE
        protocol = (self.protocol or "") if stable else ""
        return Description(self.state, self.protocol_type or "", protocol, self._current.described(stable=stable))

    # What members show

    @property
    def deadline_ms(self) -> float:
        """The time at which `expire` is to be called next, if nothing else happens before."""
        return self._deadlines.next

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: float) -> ErrorCode:
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self._current.check(member_id, instance_id, generation)
        if error is not None:
            return error
        self._heard(self._members[member_id], now_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is State.PREPARING else ErrorCode.NONE

    def check_commit(self, member_id: str, instance_id: str | None, generation: int, now_ms: float) -> None:
        """Raise KafkaError unless offsets may be committed; a member's commit counts as a heartbeat."""
        if self.state is State.DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if generation < 0 and self.state is State.EMPTY:
            return
        error = self._current.check(member_id, instance_id, generation)
        if error is None and self.state is State.COMPLETING:
            error = ErrorCode.REBALANCE_IN_PROGRESS
        if error is not None:
            raise KafkaError(error)
        self._heard(self._members[member_id], now_ms)

    def check_transactional_commit(self, member_id: str, instance_id: str | None, generation: int) -> None:
        """The same for offsets of a transaction. They may come from a producer that says nothing of the group (before
        KIP-447), whatever state that is in, and while members are still being told what they are to read."""
        if self.state is State.DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if generation < 0 and (self.state is State.EMPTY or not (member_id or instance_id)):
            return
        error = self._current.check(member_id, instance_id, generation)
        if error is not None:
            raise KafkaError(error)

    # What happens to it

    def start(self, now: Moment) -> list[Effect]:
        """Restored members have a whole session to be heard of. Some may have sent something already, or be new."""
        for member in self._members:
            if member.deadline_ms == inf:
                self._heard(member, now.ms)
        if self.size > self._settings.max_size:
            self._rebalance_if_may(f"it has more than {self._settings.max_size} members after a start", now)
        return self._decided()

    def join(self, join: Join, now: Moment) -> list[Effect]:
        if not self._has_room_for(join.member_id):
            self._drop(join.member_id)
            self._answer_now(join, Joined(ErrorCode.GROUP_MAX_SIZE_REACHED, ""))
        elif self.state is State.DEAD:
            self._answer_now(join, Joined(ErrorCode.COORDINATOR_NOT_AVAILABLE, join.member_id))
        elif not self._supports(join):
            self._answer_now(join, Joined(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, join.member_id))
        elif not join.member_id:
            self._join_new(join, now)
        elif join.member_id in self._pending:
            self._join_pending(join, now)
        else:
            self._join_again(join, now)
        self._complete_if_all_joined(now)
        return self._decided()

    def sync(self, sync: Sync, now: Moment) -> list[Effect]:
        error = self._sync_error(sync)
        if error is not None:
            self._effects.append(Answer(sync.respond, Synced(error)))
            return self._decided()
        member = self._members[sync.member_id]
        self._has_synced(member.id)
        if self.state is State.STABLE:
            self._answer_sync_now(sync, member, now)
            return self._decided()
        self._give_up_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.syncing = sync.respond
        if self._members.leader == member.id and not self._assigning:
            self._assign(sync.assignments)
        return self._decided()

    def leave(self, leaving: Leaving, now: Moment) -> tuple[ErrorCode, list[Effect]]:
        if self.state is State.DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return self._leave(leaving, now), self._decided()

    def expire(self, now: Moment) -> list[Effect]:
        """Handle the deadlines that have passed."""
        if now.ms >= self._deadlines.sessions:
            self._end_sessions(now)
        if now.ms >= self._deadlines.rebalance:
            self._end_rebalance(now)
        if now.ms >= self._deadlines.sync:
            self._end_syncs(now)
        return self._decided()

    def apply(self, record: GroupWritten) -> None:
        """The log has it now. Nothing is to be done about a generation that is already over."""
        if record.generation != self.generation:
            return
        for written in record.members:
            member = self._members.get(written.member_id)
            if member is not None:
                member.assignment = written.assignment

    def written(self, write: Write, error: ErrorCode | None, now: Moment) -> list[Effect]:
        """The end of a write: the record is in the log and applied, or never will be."""
        if write.replaced is not None:
            self._end_replacement(write.replaced, error, now)
        elif self.state is State.COMPLETING and write.record.generation == self.generation:
            self._end_assignment(error, now)
        self._refused = error is not None
        return self._decided()

    def die(self) -> None:
        """Begin its deletion: clients are told to retry until that is done."""
        self._enter(State.DEAD, self.state_timestamp)
        self._deadlines.stop()

    def unload(self) -> list[Effect]:
        """Answer everything that waits: another broker coordinates the group now."""
        for member in self._members:
            self._answer_join(member, Joined(ErrorCode.NOT_COORDINATOR, member.id))
            self._give_up_sync(member, ErrorCode.NOT_COORDINATOR)
        if self.state is not State.DEAD:
            self.die()
        return self._decided()

    # Joining

    def _has_room_for(self, member_id: str) -> bool:
        """During a rebalance only members that have joined count, so the last ones to come are refused."""
        if self.state in (State.EMPTY, State.DEAD):
            return True
        member = self._members.get(member_id)
        if self.state is State.PREPARING:
            has_joined = member is not None and member.joining is not None
            return has_joined or self._members.joining < self._settings.max_size
        return member is not None or self.size < self._settings.max_size

    def _supports(self, join: Join) -> bool:
        if self.state is State.EMPTY:
            return bool(join.protocol_type and join.protocols)
        return self.protocol_type == join.protocol_type and self._members.any_knows(join.protocols)

    def _join_new(self, join: Join, now: Moment) -> None:
        replaced = None if join.instance_id is None else self._members.of_instance(join.instance_id)
        if replaced is not None:
            self._replace(self._members[replaced], join, now)
        elif join.needs_id:
            until_ms = now.ms + join.session_timeout_ms
            self._pending.add(join.new_id, until_ms)
            self._deadlines.watch(until_ms)
            self._answer_now(join, Joined(ErrorCode.MEMBER_ID_REQUIRED, join.new_id))
        else:
            self._add(join.new_id, join, now)

    def _join_pending(self, join: Join, now: Moment) -> None:
        """Static members never get an id in advance, so one that sends such an id is refused, as Kafka does."""
        if join.instance_id is not None:
            self._answer_now(join, Joined(ErrorCode.UNKNOWN_SERVER_ERROR, ""))
        else:
            self._add(join.member_id, join, now)

    def _add(self, member_id: str, join: Join, now: Moment) -> None:
        if self.state is State.PREPARING and self.generation == 0:
            self._deadlines.somebody_came()
        if not self.size:
            self._current.protocol_type = join.protocol_type
        self._pending.drop(member_id)
        member = Member(member_id, join)
        member.deadline_ms = now.ms + NEW_MEMBER_TIMEOUT_MS
        self._deadlines.watch(member.next_look_ms(now.ms))
        self._members.add(member)
        self._rebalance_if_may(f"{member_id} joins, {_said(join.reason)}", now)

    def _join_again(self, join: Join, now: Moment) -> None:
        error = self._members.check(join.member_id, join.instance_id)
        if error is None and self.state is State.EMPTY:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if error is not None:
            self._answer_now(join, Joined(error, join.member_id))
            return
        member = self._members[join.member_id]
        unchanged = member.protocols == join.protocols
        leads = self._members.leader == member.id
        if unchanged and (self.state is State.COMPLETING or (self.state is State.STABLE and not leads)):
            self._answer_now(join, self._current.joined(member))  # it did not hear the answer, so it gets it again
            return
        self._rejoin(member, join)
        self._rebalance_if_may(f"{member.id} joins again, {_said(join.reason)}", now)

    def _rejoin(self, member: Member, join: Join) -> None:
        self._answer_join(member, Joined(ErrorCode.REBALANCE_IN_PROGRESS, member.id))
        self._members.rejoin(member, join)

    def _replace(self, member: Member, join: Join, now: Moment) -> None:
        """A static member came back without its id. What waits under the old one is fenced (KIP-345)."""
        replaced = Replaced(
            join.new_id,
            member.id,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
            self._members.leader,
            join.may_skip,
        )
        self._answer_join(member, Joined(ErrorCode.FENCED_INSTANCE_ID, member.id))
        self._give_up_sync(member, ErrorCode.FENCED_INSTANCE_ID)
        self._rename(member, join.new_id)
        self._heard(member, now.ms)
        self._rejoin(member, join)
        self._note_round(f"{replaced.was} is replaced by {member.id} as {join.instance_id}, {_said(join.reason)}")
        if self.state is State.STABLE and self._members.select_protocol() == self.protocol:
            assignments = {one.id: one.assignment for one in self._members}
            self._write(assignments, replaced)
        else:
            self._rebalance_if_may(f"{join.instance_id} came back, {_said(join.reason)}", now)

    def _end_replacement(self, replaced: Replaced, error: ErrorCode | None, now: Moment) -> None:
        """If a rebalance has begun meanwhile, that answers. Clients that cannot skip an assignment must not learn that
        they lead: they are told the leader as it was. If it could not be written, nobody knows of the new id: the one
        that was replaced has its place again, and the member will come back once more without an id."""
        member = self._members.get(replaced.member_id)
        if member is None or self.state is not State.STABLE:
            return
        joined = self._current.joined(member)
        if error is not None or not replaced.may_skip:
            joined = joined._replace(leader=replaced.leader_before or "", members=())
        elif self._members.leader == member.id:
            joined = joined._replace(skip_assignment=True)
        if error is not None:
            joined = joined._replace(error=error, member_id="")
            self._rename(member, replaced.was)
            member.rebalance_timeout_ms = replaced.rebalance_timeout_ms
            member.session_timeout_ms = replaced.session_timeout_ms
        self._answer_join(member, joined)
        member.deadline_ms = now.ms + replaced.session_timeout_ms  # its own counts from when it is heard of again
        self._deadlines.watch(member.next_look_ms(now.ms))

    def _rename(self, member: Member, new_id: str) -> None:
        was = member.id
        self._members.rename(member, new_id)
        if was in self._unsynced:
            self._unsynced.remove(was)
            self._unsynced.add(new_id)

    # Going

    def _leave(self, leaving: Leaving, now: Moment) -> ErrorCode:
        member_id: str | None = leaving.member_id
        if not member_id:
            member_id = None if leaving.instance_id is None else self._members.of_instance(leaving.instance_id)
            if member_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        elif member_id in self._pending:
            self._drop(member_id)
            self._complete_if_all_joined(now)
            return ErrorCode.NONE
        else:
            error = self._members.check(member_id, leaving.instance_id)
            if error is not None:
                return error
        self._remove(self._members[member_id], f"leaves, {_said(leaving.reason)}", now)
        return ErrorCode.NONE

    def _end_sessions(self, now: Moment) -> None:
        """Of some of those whose time is up; the others follow a moment later, after everybody else's turn."""
        for _ in range(_ENDED_AT_ONCE):
            if self._pending.next_ms > now.ms:
                break
            member_id = self._pending.first
            self._note(f"{member_id} did not join with the id it was given")
            self._drop(member_id)
        late = (member for member in self._members if member.deadline_ms <= now.ms and member.can_expire)
        for member in list(islice(late, _ENDED_AT_ONCE)):
            self._remove(member, "sent no heartbeat in time", now)
        self._complete_if_all_joined(now)
        waiting = [member.next_look_ms(now.ms) for member in self._members if member.can_expire]
        self._deadlines.sessions = max(min([*waiting, self._pending.next_ms]), now.ms + 1)

    def _remove(self, member: Member, why: str, now: Moment) -> None:
        self._drop(member.id)
        self._note(f"{member.id} {why}")
        self._rebalance_if_may(f"{member.id} is gone", now)
        self._complete_if_all_joined(now)

    # Rebalancing

    def _rebalance_if_may(self, why: str, now: Moment) -> None:
        if self.state in PREVIOUS[State.PREPARING]:
            self._rebalance(why, now)

    def _rebalance(self, why: str, now: Moment) -> None:
        if self.state is State.COMPLETING:
            self._withdraw_assignment(ErrorCode.REBALANCE_IN_PROGRESS, now)
        self._all_synced()
        patience_ms = self._members.rebalance_timeout_ms
        if self.state is State.EMPTY:
            self._deadlines.begin_first_rebalance(self._settings.rebalance_delay_ms, patience_ms, now.ms)
        else:
            self._deadlines.begin_rebalance(patience_ms, now.ms)
        self._enter(State.PREPARING, now.wall_ms)
        self._note_round(f"rebalances after generation {self.generation}: {why}")
        self._complete_if_all_joined(now)

    def _complete_if_all_joined(self, now: Moment) -> None:
        preparing = self.state is State.PREPARING and not self._deadlines.delaying
        if preparing and not self._pending and self._members.all_joined:
            self._complete(now)

    def _end_rebalance(self, now: Moment) -> None:
        if not self._deadlines.put_off(self._settings.rebalance_delay_ms, now.ms):
            self._complete(now)

    def _complete(self, now: Moment) -> None:
        absent = [member for member in self._members if member.joining is None and member.instance_id is None]
        for member in absent:
            self._drop(member.id)
        if absent:
            self._note(f"put out {some([member.id for member in absent])}: they did not rejoin in time")
        self._deadlines.end_rebalance()
        if self.size and not self._members.elect():
            self._note("still waits: no member has rejoined")
            self._deadlines.begin_rebalance(max(self._members.rebalance_timeout_ms, LEAST_PATIENCE_MS), now.ms)
            return
        self._current.number += 1
        if self.size:
            self._begin_generation(now)
        else:
            self._become_empty(now)

    def _begin_generation(self, now: Moment) -> None:
        self._current.protocol = self._members.select_protocol()
        self._current.note_subscriptions()
        self._assigning = False
        self._enter(State.COMPLETING, now.wall_ms)
        self._note_round(f"generation {self.generation} has {self.size} members, led by {self._members.leader}")
        for member in self._members:
            self._answer_join(member, self._current.joined(member))
            member.new = False
            self._heard(member, now.ms)
            self._unsynced.add(member.id)
        self._deadlines.sync = now.ms + self._members.rebalance_timeout_ms

    def _become_empty(self, now: Moment) -> None:
        self._current.protocol = None
        self._current.note_subscriptions()
        self._deadlines.sessions = self._pending.next_ms
        self._enter(State.EMPTY, now.wall_ms)
        self._note(f"is empty in generation {self.generation}")
        self._write({})

    # Assigning

    def _sync_error(self, sync: Sync) -> ErrorCode | None:
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self._current.check(sync.member_id, sync.instance_id, sync.generation)
        if error is not None:
            return error
        if sync.protocol_type not in (None, self.protocol_type) or sync.protocol not in (None, self.protocol):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is State.PREPARING else None

    def _assign(self, assignments: Mapping[str, bytes]) -> None:
        """Members that are left out get an empty assignment; assignments to others are dropped."""
        self._assigning = True
        left_out = [member.id for member in self._members if member.id not in assignments]
        if left_out:
            self._note_round(f"the leader of generation {self.generation} assigned nothing to {some(left_out)}")
        self._write(assignments)

    def _end_assignment(self, error: ErrorCode | None, now: Moment) -> None:
        if error is not None:
            self._withdraw_assignment(error, now)
            self._rebalance(f"its assignment could not be written: {error.name}", now)
            return
        self._enter(State.STABLE, now.wall_ms)
        self._note(f"generation {self.generation} is stable")
        for member in self._members:
            if member.syncing is not None:
                respond, member.syncing = member.syncing, None
                self._effects.append(Answer(respond, self._current.synced(member)))
                self._heard(member, now.ms)

    def _withdraw_assignment(self, error: ErrorCode, now: Moment) -> None:
        for member in self._members:
            member.assignment = b""
            if member.syncing is not None:
                self._give_up_sync(member, error)
                self._heard(member, now.ms)

    def _answer_sync_now(self, sync: Sync, member: Member, now: Moment) -> None:
        self._effects.append(Answer(sync.respond, self._current.synced(member)))
        self._heard(member, now.ms)

    def _has_synced(self, member_id: str) -> None:
        self._unsynced.discard(member_id)
        if not self._unsynced:
            self._deadlines.sync = inf

    def _all_synced(self) -> None:
        self._unsynced.clear()
        self._deadlines.sync = inf

    def _end_syncs(self, now: Moment) -> None:
        late = [member for member in self._members if member.id in self._unsynced]
        for member in late:
            self._drop(member.id)
        self._rebalance(f"{some([member.id for member in late])} did not ask for an assignment in time", now)

    # Small parts

    def _write(self, assignments: Mapping[str, bytes], replaced: Replaced | None = None) -> None:
        self.recorded = True
        record = self._current.record(self.name, self.state_timestamp, assignments)
        self._effects.append(Write(record, replaced))

    def _enter(self, state: State, wall_ms: int) -> None:
        if self.state not in PREVIOUS[state]:
            raise AssertionError(f"group {self.name} goes from {self.state.value} to {state.value}")
        self.state = state
        self.state_timestamp = wall_ms

    def _heard(self, member: Member, now_ms: float) -> None:
        member.heard(now_ms)
        self._deadlines.watch(member.deadline_ms)

    def _answer_now(self, join: Join, joined: Joined) -> None:
        self._effects.append(Answer(join.respond, joined))

    def _answer_join(self, member: Member, joined: Joined) -> None:
        respond = self._members.answered(member)
        if respond is not None:
            self._effects.append(Answer(respond, joined))

    def _give_up_sync(self, member: Member, error: ErrorCode) -> None:
        respond, member.syncing = member.syncing, None
        if respond is not None:
            self._effects.append(Answer(respond, Synced(error)))

    def _note(self, text: str) -> None:
        self._effects.append(Note(text))

    def _note_round(self, text: str) -> None:
        """The same of what happens in each round, unless the rounds are those of refused writes."""
        if not self._refused:
            self._note(text)

    def _decided(self) -> list[Effect]:
        decided, self._effects = self._effects, []
        return decided

    def _drop(self, member_id: str) -> None:
        """Forget a member, or an id that was given out. What the member waits for is answered."""
        self._pending.drop(member_id)
        member = self._members.get(member_id)
        if member is not None:
            self._answer_join(member, Joined(ErrorCode.UNKNOWN_MEMBER_ID, ""))
            self._give_up_sync(member, ErrorCode.UNKNOWN_MEMBER_ID)
            self._members.remove(member)
            self._has_synced(member_id)


def _said(reason: str | None) -> str:
    return f"saying {reason!r}" if reason else "saying nothing"
