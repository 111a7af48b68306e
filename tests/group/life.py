"""Groups in a world that a test moves: a clock, timers, and a log that commits at once, later, or not at all."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from kafkad.errors import ErrorCode, KafkaError
from kafkad.group.events import Join, Joined, Leaving, State, Sync, Synced
from kafkad.group.group import GroupSettings
from kafkad.group.machine import GroupMachine, OnEnd
from kafkad.group.records import GroupRecord
from kafkad.timers import Timers
from tests.fakes import FakeClock

RANGE = (("range", b"r"),)
G = "g"


def settings(**changed: int) -> GroupSettings:
    usual = {
        "rebalance_delay_ms": 3000,
        "min_session_timeout_ms": 6000,
        "max_session_timeout_ms": 1_800_000,
        "max_size": 2**31 - 1,
    }
    return GroupSettings(**(usual | changed))


class Asked:
    """A request that was sent, and what came back."""

    def __init__(self) -> None:
        self.answers: list[Any] = []

    def __call__(self, answer: Joined | Synced) -> None:
        self.answers.append(answer)

    @property
    def answered(self) -> bool:
        return bool(self.answers)

    @property
    def answer(self) -> Any:
        [answer] = self.answers
        return answer

    @property
    def error(self) -> ErrorCode:
        error: ErrorCode = self.answer.error
        return error


class Life:
    """One partition's machine. `hold` keeps writes back until `commit`; `failure` refuses them."""

    def __init__(self, **changed: int) -> None:
        self.settings = settings(**changed)
        self.clock = FakeClock()
        self.timers = Timers()
        self.log: list[GroupRecord] = []
        self.hold = False
        self.failure: ErrorCode | None = None
        self.most_bytes = 1_000_000
        """Of a batch."""
        self.refused = False
        self._held: deque[tuple[Sequence[GroupRecord], OnEnd]] = deque()
        self._soon: deque[Callable[[], None]] = deque()
        self._later: deque[Callable[[], None]] = deque()
        self.busy = False
        """True: what may come later does not come yet."""
        self._ids = 0
        self.machine = self._machine()
        self.machine.loaded()

    def _machine(self) -> GroupMachine:
        return GroupMachine(
            self.write,
            self.write,
            clock=self.clock,
            timers=self.timers,
            soon=self._soon.append,
            later=self._later.append,
            most_bytes=lambda: self.most_bytes,
            settings=self.settings,
        )

    def write(self, records: Sequence[GroupRecord], on_end: OnEnd) -> None:
        if self.failure is not None:
            on_end(KafkaError(self.failure))
        elif self.hold:
            self._held.append((records, on_end))
        else:
            self._commit(records, on_end)

    def _commit(self, records: Sequence[GroupRecord], on_end: OnEnd) -> None:
        for record in records:
            again = self.machine.decode(*self.machine.encode(record))
            assert again == record
            self.log.append(record)
            self.machine.apply(record)
        on_end(None)

    def commit(self) -> None:
        """Commits the writes that were held back."""
        while self._held:
            self._commit(*self._held.popleft())
        self.turn()

    def commit_first(self) -> None:
        """Commits the oldest of them."""
        self._commit(*self._held.popleft())
        self.turn()

    def refuse(self, error: ErrorCode) -> None:
        """Fails the writes that were held back."""
        self.refused = self.refused or bool(self._held)
        while self._held:
            _, on_end = self._held.popleft()
            on_end(KafkaError(error))
        self.turn()

    def restart(self) -> None:
        """Another broker, or this one again: all that is left is the log."""
        self._held.clear()
        self.machine.unloaded()
        self.turn()
        self.machine = self._machine()
        for record in self.log:
            self.machine.apply(record)
        self.machine.loaded()
        self.turn()

    def turn(self) -> None:
        while self._soon or (self._later and not self.busy):
            (self._soon or self._later).popleft()()

    def advance(self, ms: float) -> None:
        """Time passes; what is due rings when it is due."""
        until = self.clock.monotonic_ms() + ms
        while (due := self.timers.next_deadline_ms()) is not None and due <= until:
            self._move_to(due)
            self.timers.expire(due)
            self.turn()
        self._move_to(until)

    def _move_to(self, ms: float) -> None:
        self.clock.advance(max(int(ms - self.clock.monotonic_ms()), 0))

    # What members do

    def join(self, member_id: str = "", instance_id: str | None = None, group: str = G, **more: Any) -> Asked:
        self._ids += 1
        asked = Asked()
        join = Join(
            respond=asked,
            member_id=member_id,
            new_id=f"{instance_id or 'c'}-{self._ids}",
            instance_id=instance_id,
            client_id="c",
            client_host="/127.0.0.1",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=RANGE,
        )
        self.machine.join(group, join._replace(**more))
        self.turn()
        return asked

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol: str | None = None,
        group: str = G,
    ) -> Asked:
        asked = Asked()
        self.machine.sync(
            group, Sync(asked, member_id, instance_id, generation, protocol_type, protocol, assignments or {})
        )
        self.turn()
        return asked

    def heartbeat(
        self, member_id: str, generation: int, *, instance_id: str | None = None, group: str = G
    ) -> ErrorCode:
        return self.machine.heartbeat(group, member_id, instance_id, generation)

    def leave(self, *member_ids: str, group: str = G) -> list[ErrorCode]:
        errors = [self.machine.leave(group, Leaving(member_id)) for member_id in member_ids]
        self.turn()
        return errors

    def delete(self, group: str = G) -> Asked:
        """Answered with an error or None."""
        asked = Asked()
        self.machine.delete(group, asked)  # type: ignore[arg-type]
        self.turn()
        return asked

    def state(self, group: str = G) -> State:
        found = self.machine.group(group)
        return State.DEAD if found is None else found.state

    def generation(self, group: str = G) -> int:
        found = self.machine.group(group)
        assert found is not None
        return found.generation

    def stable(self, count: int = 1, **more: Any) -> list[str]:
        """A stable group of so many members, all by the old way of joining without an id; the first leads."""
        asked = [self.join(**more) for _ in range(count)]
        self.advance(self.settings.rebalance_delay_ms * (2 if count > 1 else 1))
        members = [one.answer.member_id for one in asked]
        generation = asked[0].answer.generation
        syncs = [self.sync(members[0], generation, {member: member.encode() for member in members})]
        syncs += [self.sync(member, generation) for member in members[1:]]
        assert all(sync.error == ErrorCode.NONE for sync in syncs)
        assert self.state() is State.STABLE
        return members
