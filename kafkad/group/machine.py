"""The groups and offsets of one partition of `__consumer_offsets`: applies its records and runs the groups' decisions.

A group decides; this carries it out: answers whoever waits, writes records, and calls the group when its time is up.
Each group has one timer at most for its deadlines. It is moved only when one comes nearer, so that a heartbeat costs no
timer: a timer that rings too early finds nothing to do and is set anew.

A group hears of a refused write after a pause: members that are told so ask again at once, and would keep the broker
busy while in-sync replicas are missing. It hears of it sooner when somebody joins, or when its next write ends.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import inf

from kafkad.clock import Clock
from kafkad.errors import ErrorCode, KafkaError
from kafkad.group import records
from kafkad.group.events import Answer, Effect, Join, Joined, Leaving, Moment, State, Sync, Synced, Write
from kafkad.group.group import Group, GroupSettings
from kafkad.group.offsets import Offsets, Position
from kafkad.group.records import (
    GroupForgotten,
    GroupRecord,
    OffsetCommitted,
    OffsetForgotten,
)
from kafkad.shard import level_of_refusal
from kafkad.timers import Timer, Timers
from kafkad.turns import Pieces

log = logging.getLogger(__name__)

OnEnd = Callable[[KafkaError | None], None]
WriteRecords = Callable[[Sequence[GroupRecord], OnEnd], None]

MOST_PROTOCOLS = 32
"""That a member may name; clients name one to five."""
_ANSWERS_A_TURN = 32
"""Members of a large generation are answered so many in a turn, so that others get their turn in between."""
_GROUPS_AT_ONCE = 50
_MOST_BEGUN = 10_000
"""So many groups of which nothing came stay until expiry looks through all: clients may name new ones without end."""
_MOST_PENDING = 100_000
"""The same with those that have given out an id: whose it is has to join once more without one."""
_TOMBSTONES_AT_ONCE = 500
_REFUSED_PAUSE_MS = 300
_REFUSALS_TOLD_EACH_MS = 10_000

_AS_GROUPS_SEE_IT = {
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""Codes for members when their group is too large to be written; the shard has translated the other codes."""


class GroupMachine:
    """A `shard.Machine`. `write` and `write_all` are those of its shard, which writes batches of `most_bytes`; `soon`
    runs something in the next turn of the event loop, `later` when it is its turn among work that may wait."""

    def __init__(
        self,
        write: WriteRecords,
        write_all: WriteRecords,
        *,
        clock: Clock,
        timers: Timers,
        soon: Callable[[Callable[[], None]], object],
        later: Callable[[Callable[[], None]], object],
        most_bytes: Callable[[], int],
        settings: GroupSettings,
    ) -> None:
        self.groups: dict[str, Group] = {}
        self._begun: dict[str, None] = {}
        """Groups that were made last, of which nothing may have come; none that is gone: names may be long."""
        self.offsets = Offsets()
        self.generations = 0
        """The number of generations that became stable since the partition was loaded."""
        self._write = write
        self._write_all = write_all
        self._clock = clock
        self._timers = timers
        self._soon = soon
        self._later = later
        self._most_bytes = most_bytes
        self._settings = settings
        self._alarms: dict[Group, Timer] = {}
        """Of a group, not of its name: after a deletion another one may have that."""
        self._refused: dict[Group, tuple[Timer, Callable[[], None]]] = {}
        """Groups that have not heard yet of the end of a write, and what tells them."""
        self._refusals: dict[ErrorCode, tuple[float, int]] = {}
        """When the log said last that a generation was refused so, and how many were since."""
        self._answers: deque[Answer] = deque()
        self._answering = False
        self._live = False

    # The log

    def encode(self, record: GroupRecord) -> tuple[bytes, bytes | None]:
        return records.encode(record)

    def least_size(self, record: GroupRecord) -> int:
        return records.least_size(record)

    def decode(self, key: bytes, value: bytes | None) -> GroupRecord | None:
        return records.decode(key, value)

    def apply(self, record: GroupRecord, producer_id: int = -1) -> None:
        """HOT for offsets. A group that lives has decided what its record says; before, the record is all there is."""
        if isinstance(record, (OffsetCommitted, OffsetForgotten)):
            self.offsets.apply(record, producer_id)
        elif isinstance(record, GroupForgotten):
            self._drop(record.group)
        elif not self._live:
            self.groups[record.group] = Group.restored(record, self._settings)
        elif (group := self.groups.get(record.group)) is not None:
            group.apply(record)

    def put_offsets(self, group: str, values: Mapping[Position, bytes]) -> None:
        """Apply what many records of one commit say."""
        self.offsets.put_all(group, values)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        self.offsets.end_transaction(producer_id, committed)

    def missed(self, where: str) -> Pieces[None]:
        """An older commit counts then, and a group without its last generation rejoins: at least once."""
        yield from ()

    def loaded(self) -> None:
        self._live = True
        self._start(deque(self.groups.values()))

    def unloaded(self) -> None:
        self._live = False
        for timer in (*self._alarms.values(), *(timer for timer, _ in self._refused.values())):
            timer.cancel()
        self._alarms.clear()
        self._refused.clear()
        groups = deque(self.groups.values())
        self.groups.clear()
        self._begun.clear()
        self.offsets = Offsets()
        self._unload(groups)

    def _start(self, groups: deque[Group]) -> None:
        """Start the first of these, and later the others, if they are still there. Requests do not wait for that."""
        now = self._now()
        for _ in range(min(_GROUPS_AT_ONCE, len(groups))):
            group = groups.popleft()
            if self.groups.get(group.name) is group:
                self._perform(group, group.start(now))
        if groups:
            self._later(partial(self._start, groups))

    def _unload(self, groups: deque[Group]) -> None:
        for _ in range(min(_GROUPS_AT_ONCE, len(groups))):
            group = groups.popleft()
            self._perform(group, group.unload())
        if groups:
            self._later(partial(self._unload, groups))

    # What is asked

    def group(self, name: str) -> Group | None:
        """The group; for a name that only has offsets, an empty one that is not kept."""
        group = self.groups.get(name)
        if group is None and name in self.offsets:
            return self._new(name)
        return group

    def begin(self, name: str) -> Group:
        """The group, created if needed. It goes if nothing comes of it, when expiry looks or many others have begun."""
        group = self.groups.get(name)
        if group is None:
            group = self.groups[name] = self._new(name)
            self._begun[name] = None
            if len(self._begun) > _MOST_BEGUN:
                self._drop_if_nothing(next(iter(self._begun)))
        return group

    def _drop_if_nothing(self, name: str) -> None:
        group = self.groups[name]
        is_many = len(self._begun) > _MOST_PENDING
        del self._begun[name]
        if group.recorded or name in self.offsets:
            return
        if group.is_nothing or (group.state is State.EMPTY and is_many):
            self._drop(name)
            alarm = self._alarms.pop(group, None)
            if alarm is not None:
                alarm.cancel()
        elif group.state is State.EMPTY:
            self._begun[name] = None  # an id that was given out may still be used

    def _drop(self, name: str) -> None:
        self.groups.pop(name, None)
        self._begun.pop(name, None)

    def names(self) -> set[str]:
        return self.groups.keys() | self.offsets.groups()

    def states(self) -> Iterator[State]:
        """The state of each group that there is now, as it is by its turn."""
        for name in self.names():
            group = self.groups.get(name)
            yield State.EMPTY if group is None else group.state

    def join(self, name: str, join: Join) -> None:
        """A group is created for its first member, which has no id yet. One that could never be written with its group
        gets the error that Kafka has for all its members then. In Kafka it may name any number of protocols, all of
        which are kept and gone through with each generation."""
        settings = self._settings
        group = self.groups.get(name)
        if not settings.min_session_timeout_ms <= join.session_timeout_ms <= settings.max_session_timeout_ms:
            self._answer(Answer(join.respond, Joined(ErrorCode.INVALID_SESSION_TIMEOUT, join.member_id)))
        elif (count := len(join.protocols)) > MOST_PROTOCOLS:
            log.info(
                "group %s: a member from %s is refused, for it names %d protocols; %d at most are allowed",
                *(name, join.client_host, count, MOST_PROTOCOLS),
            )
            self._answer(Answer(join.respond, Joined(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, join.member_id)))
        elif (size := join.least_metadata) > self._most_bytes():
            log.info("group %s: a member is refused, for no record could hold its %d bytes of metadata", name, size)
            self._answer(Answer(join.respond, Joined(ErrorCode.UNKNOWN_SERVER_ERROR, join.member_id)))
        elif group is None and join.member_id:
            self._answer(Answer(join.respond, Joined(ErrorCode.UNKNOWN_MEMBER_ID, join.member_id)))
        else:
            group = self.begin(name)
            self._end_refused(group)
            self._perform(group, group.join(join, self._now()))

    def sync(self, name: str, sync: Sync) -> None:
        group = self.groups.get(name)
        if group is None:
            self._answer(Answer(sync.respond, Synced(ErrorCode.UNKNOWN_MEMBER_ID)))
        else:
            self._perform(group, group.sync(sync, self._now()))

    def heartbeat(self, name: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """HOT."""
        group = self.groups.get(name)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return group.heartbeat(member_id, instance_id, generation, self._clock.monotonic_ms())

    def leave(self, name: str, leaving: Leaving) -> ErrorCode:
        group = self.groups.get(name)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error, effects = group.leave(leaving, self._now())
        self._perform(group, effects)
        return error

    def delete(self, name: str, on_end: OnEnd) -> None:
        """Delete the group and all its offsets if it has no members. No member can join while that is being written."""
        group = self.group(name)
        if group is None or group.state is State.DEAD:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {name}")
        if group.state is not State.EMPTY:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"group {name} has members")
        group.die()
        self._set_alarm(group)
        self.groups[name] = group
        self._bury(group, deque(self.offsets.positions(name)), partial(self._deleted, group, on_end))

    def _bury(self, group: Group, positions: deque[Position], on_end: OnEnd, failed: KafkaError | None = None) -> None:
        """Write some of its tombstones, and later the others: nobody commits to a group that is dead. Its own is the
        last. `on_end` is told what went wrong first; `failed` has already."""
        count = min(_TOMBSTONES_AT_ONCE, len(positions))
        tombstones: list[GroupRecord] = [OffsetForgotten(group.name, *positions.popleft()) for _ in range(count)]
        if not positions and group.recorded:
            tombstones.append(GroupForgotten(group.name))

        def ended(error: KafkaError | None) -> None:
            first = failed or error
            if positions:
                self._later(partial(self._bury, group, positions, on_end, first))
            else:
                on_end(first)

        self._write_all(tombstones, ended)

    def forget_offsets(self, name: str, positions: set[Position], on_end: OnEnd) -> None:
        """A group without members is deleted with its last offset. The positions are as many as may be written in one
        turn of the event loop."""
        gone = self.offsets.there(name, positions)
        group = self.group(name)
        if group is not None and group.state is State.EMPTY and self.offsets.has_only(name, gone):
            self.delete(name, on_end)
        else:
            self._write_all([OffsetForgotten(name, *position) for position in gone], on_end)

    # Carrying out

    def _new(self, name: str) -> Group:
        return Group(name, self._settings, self._clock.now_ms())

    def _now(self) -> Moment:
        return Moment(self._clock.monotonic_ms(), self._clock.now_ms())

    def _perform(self, group: Group, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Answer):
                self._answers.append(effect)
            elif isinstance(effect, Write):
                self._write((effect.record,), partial(self._written, group, effect))
            else:
                log.info("group %s: %s", group.name, effect.text)
        if not self._answering:
            self._give_answers()
        self._set_alarm(group)

    def _written(self, group: Group, write: Write, error: KafkaError | None) -> None:
        self._end_refused(group)
        if error is None:
            self._end(group, write, None)
            return
        self._note_refusal(write, error)
        end = partial(self._end, group, write, _AS_GROUPS_SEE_IT.get(error.code, error.code))
        if write.replaced is not None:
            end()  # the member of before has its place again, and must not be told meanwhile that it is fenced
        else:
            due_ms = self._clock.monotonic_ms() + _REFUSED_PAUSE_MS
            self._refused[group] = self._timers.at(due_ms, end), end

    def _end_refused(self, group: Group) -> None:
        refused = self._refused.get(group)
        if refused is not None:
            timer, end = refused
            timer.cancel()
            end()

    def _end(self, group: Group, write: Write, error: ErrorCode | None) -> None:
        self._refused.pop(group, None)
        was = group.state
        effects = group.written(write, error, self._now())
        if group.state is State.STABLE and was is not State.STABLE:
            self.generations += 1
        self._perform(group, effects)

    def _note_refusal(self, write: Write, error: KafkaError) -> None:
        """While in-sync replicas are missing, each group is refused again and again."""
        now_ms = self._clock.monotonic_ms()
        told_ms, since = self._refusals.get(error.code, (-inf, 0))
        if now_ms - told_ms < _REFUSALS_TOLD_EACH_MS:
            self._refusals[error.code] = told_ms, since + 1
            return
        more = (
            f" ({since} more generations of groups of this partition were refused since the last line)" if since else ""
        )
        text = "group %s: could not write generation %d: %s%s"
        log.log(level_of_refusal(error), text, write.record.group, write.record.generation, error, more)
        self._refusals[error.code] = now_ms, 0

    def _answer(self, answer: Answer) -> None:
        self._answers.append(answer)
        if not self._answering:
            self._give_answers()

    def _give_answers(self) -> None:
        answers = self._answers
        turn = [answers.popleft() for _ in range(min(_ANSWERS_A_TURN, len(answers)))]
        self._answering = bool(answers)
        if answers:
            self._soon(self._give_answers)
        for respond, answer in turn:
            try:
                respond(answer)
            except Exception:  # the others are answered
                log.exception("internal error: a member of a group could not be answered")

    def _set_alarm(self, group: Group) -> None:
        """Set the group's timer to its next deadline, unless it goes off earlier anyway."""
        deadline_ms = group.deadline_ms
        alarm = self._alarms.get(group)
        if alarm is not None:
            if alarm.deadline_ms <= deadline_ms < inf:
                return
            alarm.cancel()
            del self._alarms[group]
        if deadline_ms < inf:
            self._alarms[group] = self._timers.at(deadline_ms, partial(self._ring, group))

    def _ring(self, group: Group) -> None:
        del self._alarms[group]
        self._perform(group, group.expire(self._now()))

    def _deleted(self, group: Group, on_end: OnEnd, error: KafkaError | None) -> None:
        if self.groups.get(group.name) is group:
            if error is None:
                self._drop(group.name)
            else:
                self.groups[group.name] = group.undeleted()
        on_end(error)
