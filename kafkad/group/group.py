"""One classic group as a state machine: what is asked goes in with the time, what is to be done comes out.

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

from collections.abc import Sequence
from math import inf

from kafkad.errors import ErrorCode, KafkaError
from kafkad.group.events import (
    Answer,
    Effect,
    Join,
    Joined,
    Leaving,
    Moment,
    Replaced,
    State,
    Sync,
    Synced,
    Write,
)
from kafkad.group.generations import Generations
from kafkad.group.members import Member
from kafkad.group.records import GroupWritten

NEW_MEMBER_TIMEOUT_MS = 300_000
"""Somebody new that waits in a join cannot show that it lives; after this it has to ask again."""


class Group(Generations):
    """Everything that happens to a group goes through here; what it decides is returned, never done."""

    __slots__ = ()

    # What members show

    @property
    def deadline_ms(self) -> float:
        """When `expire` is to be called next, if nothing else happens before."""
        return self._deadlines.next

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: float) -> ErrorCode:
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self._check(member_id, instance_id, generation)
        if error is not None:
            return error
        self._heard(self._members[member_id], now_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is State.PREPARING else ErrorCode.NONE

    def check_commit(self, member_id: str, instance_id: str | None, generation: int, now_ms: float) -> None:
        """Whether offsets may be committed; a member that may has been heard of."""
        if self.state is State.DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if generation < 0 and self.state is State.EMPTY:
            return
        error = self._check(member_id, instance_id, generation)
        if error is None and self.state is State.COMPLETING:
            error = ErrorCode.REBALANCE_IN_PROGRESS
        if error is not None:
            raise KafkaError(error)
        self._heard(self._members[member_id], now_ms)

    # What happens to it

    def start(self, now: Moment) -> list[Effect]:
        """Restored members have a whole session to be heard of."""
        for member in self._members:
            self._heard(member, now.ms)
        self._subscribed = self._subscriptions()
        if self.size > self._settings.max_size:
            self._rebalance(f"it has more than {self._settings.max_size} members after a start", now)
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
            self._effects.append(Answer(sync.asker, Synced(error)))
            return self._decided()
        member = self._members[sync.member_id]
        self._has_synced(member.id)
        if self.state is State.STABLE:
            self._answer_sync_now(sync, member, now)
            return self._decided()
        self._give_up_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.syncing = sync.asker
        if self._members.leader == member.id and not self._assigning:
            self._assign(sync.assignments)
        return self._decided()

    def leave(self, leaving: Sequence[Leaving], now: Moment) -> tuple[list[ErrorCode], list[Effect]]:
        """How each of them left."""
        if self.state is State.DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return [self._leave(one, now) for one in leaving], self._decided()

    def expire(self, now: Moment) -> list[Effect]:
        """Somebody's time may be up."""
        if now.ms >= self._deadlines.sessions:
            self._end_sessions(now)
        if now.ms >= self._deadlines.rebalance:
            self._end_rebalance(now)
        if now.ms >= self._deadlines.sync:
            self._end_syncs(now)
        return self._decided()

    def apply(self, record: GroupWritten) -> None:
        """The log has it now. Of a generation that is already over, only that is to be remembered."""
        self.recorded = True
        if record.generation != self.generation:
            return
        for written in record.members:
            member = self._members.get(written.member_id)
            if member is not None:
                member.assignment = written.assignment

    def written(self, write: Write, error: ErrorCode | None, now: Moment) -> list[Effect]:
        """What was to be written is in the log and applied, or will never be."""
        if write.replaced is not None:
            self._end_replacement(write.replaced, error, now)
        elif not write.record.members:
            if error is not None:
                self._note(f"could not write that it is empty: {error.name}")
        elif self.state is State.COMPLETING and write.record.generation == self.generation:
            self._end_assignment(error, now)
        return self._decided()

    def die(self) -> None:
        """It is being deleted: whoever asks now has to ask again when that is done."""
        self._enter(State.DEAD, self.state_timestamp)
        self._deadlines.stop()

    def unload(self) -> list[Effect]:
        """Another broker coordinates it now."""
        for member in self._members:
            self._answer_join(member, Joined(ErrorCode.NOT_COORDINATOR, member.id))
            self._give_up_sync(member, ErrorCode.NOT_COORDINATOR)
        if self.state is not State.DEAD:
            self.die()
        return self._decided()

    # Joining

    def _has_room_for(self, member_id: str) -> bool:
        """While it rebalances, who has joined counts: the last ones to come are the ones who are too many."""
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
            self._pending[join.new_id] = now.ms + join.session_timeout_ms
            self._deadlines.watch(self._pending[join.new_id])
            self._answer_now(join, Joined(ErrorCode.MEMBER_ID_REQUIRED, join.new_id))
        else:
            self._add(join.new_id, join, now)

    def _join_pending(self, join: Join, now: Moment) -> None:
        """Static members get no id in advance: one that claims to have is mad, and Kafka says so."""
        if join.instance_id is not None:
            self._answer_now(join, Joined(ErrorCode.UNKNOWN_SERVER_ERROR, ""))
        else:
            self._add(join.member_id, join, now)

    def _add(self, member_id: str, join: Join, now: Moment) -> None:
        if self.state is State.PREPARING and self.generation == 0:
            self._deadlines.somebody_came()
        if not self.size:
            self.protocol_type = join.protocol_type
        self._pending.pop(member_id, None)
        member = Member(member_id, join)
        member.deadline_ms = now.ms + NEW_MEMBER_TIMEOUT_MS
        self._deadlines.watch(member.deadline_ms)
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
            self._answer_now(join, self._joined(member))  # it did not hear the answer, so it gets it again
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
        self._note(f"{replaced.was} is replaced by {member.id} as {join.instance_id}, {_said(join.reason)}")
        if self.state is State.STABLE and self._members.select_protocol() == self.protocol:
            assignments = {one.id: one.assignment for one in self._members}
            self._effects.append(Write(self._record(assignments), replaced))
        else:
            self._rebalance_if_may(f"{join.instance_id} came back, {_said(join.reason)}", now)

    def _end_replacement(self, replaced: Replaced, error: ErrorCode | None, now: Moment) -> None:
        """If a rebalance has begun meanwhile, that answers. Clients that cannot skip an assignment must not learn that
        they lead: they are told the leader as it was. If it could not be written, nobody knows of the new id: the one
        that was replaced has its place again, and the member will come back once more without an id."""
        member = self._members.get(replaced.member_id)
        if member is None or self.state is not State.STABLE:
            return
        joined = self._joined(member)
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
        self._deadlines.watch(member.deadline_ms)

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
        for member_id in [one for one, ends_ms in self._pending.items() if ends_ms <= now.ms]:
            self._note(f"{member_id} never used its id")
            self._drop(member_id)
        for member in self._members:
            if member.deadline_ms <= now.ms and member.can_expire:
                self._remove(member, "was not heard of in time", now)
        self._complete_if_all_joined(now)
        waiting = [member.deadline_ms for member in self._members if member.can_expire]
        self._deadlines.sessions = min([*waiting, *self._pending.values()], default=inf)

    def _remove(self, member: Member, why: str, now: Moment) -> None:
        self._answer_join(member, Joined(ErrorCode.UNKNOWN_MEMBER_ID, ""))
        self._give_up_sync(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self._drop(member.id)
        self._note(f"{member.id} {why}")
        self._rebalance_if_may(f"{member.id} is gone", now)
        self._complete_if_all_joined(now)


def _said(reason: str | None) -> str:
    return f"saying {reason!r}" if reason else "saying nothing"
