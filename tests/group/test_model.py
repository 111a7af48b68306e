"""Random lives of a group: members that come, go, crash, lose answers and share names, writes that hang or fail,
restarts, and time. Whatever happens, what Kafka promises must hold."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from kafkad.errors import ErrorCode, KafkaError
from kafkad.group.events import Joined, Leaving, State
from tests.group.life import Asked, G, Life

OK = ErrorCode.NONE
PARTITIONS = range(7)
MAX_SIZE = 5
LOST_ID = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED}
NO_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)
"""It takes minutes with programs this long."""
STARTS_OVER = {ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS}


class Client:
    """As a consumer behaves; two may have been given one instance id by mistake."""

    def __init__(self, name: str, instance_id: str | None = None, *, needs_id: bool = True) -> None:
        self.name = name
        self.instance_id = instance_id
        self.needs_id = needs_id and instance_id is None
        self.member_id = ""
        self.generation = -1
        self.joined: Joined | None = None
        self.joining: Asked | None = None
        self.syncing: Asked | None = None
        self.assigned = False

    def forget(self) -> None:
        self.member_id = ""
        self.start_over()

    def start_over(self) -> None:
        self.generation = -1
        self.joined = self.joining = self.syncing = None
        self.assigned = False


class Model:
    """The clients' view of a group, and its invariants. An era ends when the group is deleted, a term when the broker
    is restarted: generations that were not written are counted again after that."""

    def __init__(self) -> None:
        self.life = Life(max_size=MAX_SIZE)
        self.clients = [
            Client("a"),
            Client("b"),
            Client("c", needs_id=False),
            Client("d", needs_id=False),
            Client("e", "i"),
            Client("f", "i"),
            Client("g", "j"),
        ]
        self.asked: list[Asked] = []
        self.outstanding: list[Asked] = []
        self.deletions: list[Asked] = []
        """Those that are not in the log yet."""
        self.era = 0
        self.term = 0
        self.newest = 0
        self.restored = 0
        self.holder: dict[str, Client] = {}
        """The latest client of each instance id: all others are fenced."""
        self.announced: dict[tuple[int, int, int], set[str]] = defaultdict(set)
        self.given: dict[tuple[int, int], dict[int, str]] = defaultdict(dict)
        self.dictated: dict[tuple[int, int], list[dict[str, bytes]]] = defaultdict(list)
        """The assignments that leaders sent, by the generation that they are of."""
        self.leaders: dict[tuple[int, int, int], str] = {}

    # Steps

    def join(self, number: int) -> None:
        client = self.client(number)
        if client.joining is not None:
            return
        client.syncing = client.joined = None
        client.assigned = False
        asked = self.life.join(
            client.member_id,
            client.instance_id,
            needs_id=client.needs_id,
            may_skip=number % 2 == 0,
            protocols=(("range", b"m" * (number % 3 == 0)), ("sticky", b"")),
            rebalance_timeout_ms=20_000,
        )
        client.joining = asked
        self.outstanding.append(asked)
        self.asked.append(asked)
        taken_in = not asked.answered or asked.error == OK
        if client.instance_id is not None and not client.member_id and taken_in:
            self.holder[client.instance_id] = client

    def poll(self, number: int) -> None:
        """Takes the next step of a well-behaved consumer."""
        client = self.client(number)
        if client.joining is not None or client.syncing is not None:
            return
        if client.joined is None:
            self.join(number)
        elif client.assigned:
            self.heartbeat(number)
        else:
            self.sync(number)
        self.receive()

    def everybody_polls(self, number: int) -> None:
        for other in range(number, number + len(self.clients)):
            self.poll(other)

    def sync(self, number: int) -> None:
        client = self.client(number)
        joined = client.joined
        if joined is None or client.syncing is not None:
            return
        assignments = {}
        if joined.members and not joined.skip_assignment:
            ids = [member.member_id for member in joined.members] + ["stranger"] * (number % 3 == 1)
            for place, member_id in enumerate(ids):
                assignments[member_id] = bytes(PARTITIONS[place :: len(ids)])
            names = {member.member_id: member.instance_id or member.member_id for member in joined.members}
            dictated = {name: assignments[member_id] for member_id, name in names.items()}
            self.dictated[(self.era, joined.generation)].append(dictated)
        client.syncing = self.life.sync(
            client.member_id, joined.generation, assignments, instance_id=client.instance_id
        )
        self.asked.append(client.syncing)

    def lose_answer(self, number: int) -> None:
        """The connection broke: the client joins again when it likes, with the id it knows."""
        client = self.client(number)
        client.joining = client.syncing = None

    def heartbeat(self, number: int) -> None:
        client = self.client(number)
        if client.generation >= 0:
            self.hear(client, self.life.heartbeat(client.member_id, client.generation, instance_id=client.instance_id))

    def linger(self, number: int) -> None:
        """It lives, and does not care what it is told."""
        client = self.client(number)
        for _ in range(5):
            self.life.heartbeat(client.member_id, client.generation, instance_id=client.instance_id)
            self.life.advance(5000)

    def leave(self, number: int) -> None:
        client = self.client(number)
        try:
            error = self.life.machine.leave(G, Leaving(client.member_id, client.instance_id))
        except KafkaError:
            return
        self.life.turn()
        if client.member_id or error == OK:
            client.forget()

    def crash(self, number: int) -> None:
        self.client(number).forget()

    def commit(self, number: int) -> None:
        client = self.client(number)
        generation = client.generation - number % 2
        group = self.life.machine.group(G)
        if group is None or not client.member_id:
            return
        try:
            group.check_commit(client.member_id, client.instance_id, generation, self.life.clock.monotonic_ms())
        except KafkaError as error:
            if not number % 2:
                self.hear(client, error.code)
            return
        if generation < 0 and group.state is State.EMPTY:
            return
        assert generation == self.newest, "a commit of another generation was accepted"
        if client.instance_id is not None:
            assert self.holder[client.instance_id] is client, "a commit of a fenced instance was accepted"
        assert any(member.member_id == client.member_id for member in group.describe().members)

    def wait(self, number: int) -> None:
        self.life.advance((1, 500, 2000, 3000, 3000, 6000, 12_000, 25_000)[number % 8])

    def hold(self, number: int) -> None:
        self.life.hold = True

    def release(self, number: int) -> None:
        self.life.hold = False
        self.life.commit()
        self.note_deletions()

    def refuse(self, number: int) -> None:
        self.life.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
        self.note_deletions()

    def restart(self, number: int) -> None:
        group = self.life.machine.groups.get(G)
        before = None if group is None or group.state is not State.STABLE else group.describe()
        nothing_hangs = not self.life.hold
        self.life.hold = False
        self.life.restart()
        self.deletions.clear()
        self.term += 1
        group = self.life.machine.groups.get(G)
        self.restored = self.newest = group.generation if group is not None else 0
        if before is not None and nothing_hangs and not self.life.refused:
            assert group is not None
            after = group.describe()
            assert after.members == before.members or after.state is State.PREPARING
        members = {member.member_id for member in (group.describe().members if group is not None else ())}
        for client in self.clients:
            if client.instance_id is not None and client.member_id in members:
                self.holder[client.instance_id] = client

    def delete(self, number: int) -> None:
        try:
            self.deletions.append(self.life.delete())
        except KafkaError:
            return
        self.note_deletions()

    def note_deletions(self) -> None:
        for asked in [asked for asked in self.deletions if asked.answered]:
            self.deletions.remove(asked)
            if asked.answer is None:
                assert G not in self.life.machine.groups
                self.era += 1
                self.newest = 0

    # What clients make of answers

    def client(self, number: int) -> Client:
        return self.clients[number % len(self.clients)]

    def hear(self, client: Client, error: ErrorCode) -> None:
        if error in LOST_ID:
            client.forget()
        elif error in STARTS_OVER:
            client.start_over()

    def receive(self) -> None:
        for client in self.clients:
            if client.joining is not None and client.joining.answered:
                asked, client.joining = client.joining, None
                self.receive_joined(client, asked.answer)
            if client.syncing is not None and client.syncing.answered:
                asked, client.syncing = client.syncing, None
                if asked.error == OK:
                    self.receive_assignment(client, asked.answer.assignment)
                else:
                    self.hear(client, asked.error)

    def receive_joined(self, client: Client, joined: Joined) -> None:
        if joined.error == ErrorCode.MEMBER_ID_REQUIRED:
            assert client.needs_id
            client.member_id = joined.member_id
            return
        if joined.error != OK:
            self.hear(client, joined.error)
            return
        client.member_id = joined.member_id
        client.generation = joined.generation
        client.joined = joined
        client.assigned = False
        if joined.members:
            assert joined.leader == joined.member_id
            assert client.member_id in {member.member_id for member in joined.members}
            leader = self.leaders.setdefault((self.era, self.term, joined.generation), self.identity(client))
            assert leader == self.identity(client), "two lead one generation"

    def receive_assignment(self, client: Client, assignment: bytes) -> None:
        client.assigned = True
        said = self.dictated[(self.era, client.generation)]
        assert assignment in [one.get(self.identity(client), b"") for one in said], "nobody assigned this"
        given = self.given[(self.era, client.generation)]
        for partition in assignment:
            owner = given.setdefault(partition, self.identity(client))
            assert owner == self.identity(client), "a partition belongs to two members of one generation"

    def identity(self, client: Client) -> str:
        """A static member goes on under its instance id."""
        return client.instance_id or client.member_id

    # What holds at any time

    def check(self) -> None:
        group = self.life.machine.groups.get(G)
        assert len(self.life.timers) <= 1 + len(self.life.machine._refused), "the group's own, and of refused writes"
        assert all(len(asked.answers) <= 1 for asked in self.asked[-10:])
        if group is None:
            return
        self.newest = max(self.newest, group.generation)
        for asked in [asked for asked in self.outstanding if asked.answered]:
            self.outstanding.remove(asked)
            self.announced[(self.era, self.term, asked.answer.generation)].add(asked.answer.member_id)
        members = group.describe().members
        assert (group.state is State.EMPTY) <= (not members)
        if group.state in (State.COMPLETING, State.STABLE) and group.generation != self.restored:
            assert len(members) <= MAX_SIZE
            announced = self.announced[(self.era, self.term, group.generation)]
            assert all(member.instance_id or member.member_id in announced for member in members)
        instances = [member.instance_id for member in members if member.instance_id is not None]
        assert len(instances) == len(set(instances)), "two members have one instance id"

    def end(self) -> None:
        """Nobody comes any more: everything is answered, and nothing is left."""
        self.release(0)
        self.life.advance(400_000)
        assert all(len(asked.answers) == 1 for asked in self.asked)
        assert self.life.state() in (State.EMPTY, State.DEAD)
        self.delete(0)
        assert not self.life.machine.groups
        assert self.life.timers.next_deadline_ms() is None


Step = Callable[[Model, int], None]
STEPS: tuple[Step, ...] = (
    *[Model.everybody_polls] * 12,
    *[Model.poll] * 12,
    *[Model.wait] * 8,
    *[Model.commit] * 8,
    *[Model.join] * 3,
    *[Model.lose_answer] * 2,
    *[Model.leave] * 2,
    *[Model.crash] * 2,
    Model.linger,
    *[Model.hold] * 2,
    *[Model.release] * 3,
    Model.refuse,
    Model.restart,
    Model.delete,
)


_FEW = settings(max_examples=40, suppress_health_check=list(HealthCheck), phases=NO_SHRINKING)
BUDGETS = [
    pytest.param(_FEW, id="few"),
    pytest.param(settings(_FEW, max_examples=2000, derandomize=False), id="many", marks=pytest.mark.long),
]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("budget", BUDGETS)
def test_what_kafka_promises_holds_in_any_life(budget: settings) -> None:
    @budget
    @given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 41)), min_size=100, max_size=300))
    def live(program: list[tuple[Step, int]]) -> None:
        model = Model()
        for step, number in program:
            step(model, number)
            model.receive()
            model.check()
        model.end()

    live()
