"""How a group gets from one generation to the next: the part of `group` that rebalances and assigns.

What it decides is gathered as effects; `Group` returns them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from kafkad.errors import ErrorCode
from kafkad.group.deadlines import Deadlines
from kafkad.group.events import Answer, Effect, Join, Joined, Moment, Note, State, Sync, Synced, Write
from kafkad.group.facts import GroupFacts, GroupSettings
from kafkad.group.members import Member

PREVIOUS: Mapping[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.PREPARING}),
    State.PREPARING: frozenset({State.STABLE, State.COMPLETING, State.EMPTY}),
    State.COMPLETING: frozenset({State.PREPARING}),
    State.STABLE: frozenset({State.COMPLETING}),
    State.DEAD: frozenset({State.EMPTY, State.PREPARING, State.COMPLETING, State.STABLE}),
}

LEAST_PATIENCE_MS = 1000
"""Static members that allow no time at all for a rebalance, and do not come, must not keep the broker busy."""


class Generations(GroupFacts):
    __slots__ = ("_assigning", "_deadlines", "_effects", "_unsynced")

    def __init__(self, name: str, settings: GroupSettings, state_timestamp: int) -> None:
        super().__init__(name, settings, state_timestamp)
        self._unsynced: set[str] = set()
        """Members that have not yet asked for what this generation assigns to them."""
        self._assigning = False
        self._deadlines = Deadlines()
        self._effects: list[Effect] = []

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
        self._note(f"rebalances after generation {self.generation}: {why}")
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
            self._note(f"put out {_some(absent)}: they did not join again in time")
        self._deadlines.end_rebalance()
        if self.size and not self._members.elect():
            self._note("waits on: nobody has joined again")
            self._deadlines.begin_rebalance(max(self._members.rebalance_timeout_ms, LEAST_PATIENCE_MS), now.ms)
            return
        self.generation += 1
        if self.size:
            self._begin_generation(now)
        else:
            self._become_empty(now)

    def _begin_generation(self, now: Moment) -> None:
        self.protocol = self._members.select_protocol()
        self._subscribed = self._subscriptions()
        self._assigning = False
        self._enter(State.COMPLETING, now.wall_ms)
        self._note(f"generation {self.generation} has {self.size} members, led by {self._members.leader}")
        for member in self._members:
            self._answer_join(member, self._joined(member))
            member.new = False
            self._heard(member, now.ms)
            self._unsynced.add(member.id)
        self._deadlines.sync = now.ms + self._members.rebalance_timeout_ms

    def _become_empty(self, now: Moment) -> None:
        self.protocol = None
        self._subscribed = self._subscriptions()
        self._deadlines.sessions = min(self._pending.values(), default=inf)
        self._enter(State.EMPTY, now.wall_ms)
        self._note(f"is empty in generation {self.generation}")
        self._effects.append(Write(self._record({})))

    # Assigning

    def _sync_error(self, sync: Sync) -> ErrorCode | None:
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self._check(sync.member_id, sync.instance_id, sync.generation)
        if error is not None:
            return error
        if sync.protocol_type not in (None, self.protocol_type) or sync.protocol not in (None, self.protocol):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is State.PREPARING else None

    def _assign(self, assignments: Mapping[str, bytes]) -> None:
        """Who is left out gets nothing; who is no member is not heard of again."""
        self._assigning = True
        left_out = [member for member in self._members if member.id not in assignments]
        if left_out:
            self._note(f"the leader of generation {self.generation} assigned nothing to {_some(left_out)}")
        self._effects.append(Write(self._record(assignments)))

    def _end_assignment(self, error: ErrorCode | None, now: Moment) -> None:
        if error is not None:
            self._withdraw_assignment(error, now)
            self._rebalance(f"its assignment could not be written: {error.name}", now)
            return
        self._enter(State.STABLE, now.wall_ms)
        self._note(f"generation {self.generation} is stable")
        for member in self._members:
            if member.syncing is not None:
                asker, member.syncing = member.syncing, None
                self._effects.append(Answer(asker, self._synced(member)))
                self._heard(member, now.ms)

    def _withdraw_assignment(self, error: ErrorCode, now: Moment) -> None:
        for member in self._members:
            member.assignment = b""
            if member.syncing is not None:
                self._give_up_sync(member, error)
                self._heard(member, now.ms)

    def _answer_sync_now(self, sync: Sync, member: Member, now: Moment) -> None:
        self._effects.append(Answer(sync.asker, self._synced(member)))
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
        self._rebalance(f"{_some(late)} did not ask for an assignment in time", now)

    # Small parts

    def _enter(self, state: State, wall_ms: int) -> None:
        if self.state not in PREVIOUS[state]:
            raise AssertionError(f"group {self.name} goes from {self.state.value} to {state.value}")
        self.state = state
        self.state_timestamp = wall_ms

    def _heard(self, member: Member, now_ms: float) -> None:
        member.heard(now_ms)
        self._deadlines.watch(member.deadline_ms)

    def _answer_now(self, join: Join, joined: Joined) -> None:
        self._effects.append(Answer(join.asker, joined))

    def _answer_join(self, member: Member, joined: Joined) -> None:
        asker = self._members.answered(member)
        if asker is not None:
            self._effects.append(Answer(asker, joined))

    def _give_up_sync(self, member: Member, error: ErrorCode) -> None:
        asker, member.syncing = member.syncing, None
        if asker is not None:
            self._effects.append(Answer(asker, Synced(error)))

    def _note(self, text: str) -> None:
        self._effects.append(Note(text))

    def _decided(self) -> list[Effect]:
        decided, self._effects = self._effects, []
        return decided

    def _drop(self, member_id: str) -> None:
        self._pending.pop(member_id, None)
        member = self._members.get(member_id)
        if member is not None:
            self._members.remove(member)
            self._has_synced(member_id)


def _some(members: Sequence[Member], most: int = 5) -> str:
    names = ", ".join(member.id for member in members[:most])
    return names if len(members) <= most else f"{names} and {len(members) - most} others"
