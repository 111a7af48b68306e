"""One run of a simulated cluster: a seed, a number of steps, and all that must hold."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from kafkad.replica.partition import Partition
from tests.sim.bank import Accounts, BankInvariants, CommittedReader, Mover
from tests.sim.faults import Faults, Focus
from tests.sim.history import BANK, LOOSE, History, Violation
from tests.sim.invariants import Invariants
from tests.sim.machines import Machine
from tests.sim.network import Network
from tests.sim.store import StoreServer
from tests.sim.workload import STEADY, Administrator, Client, Committer, Consumer, Producer
from tests.sim.world import World

SHORT_SEGMENTS = ("log.segment.bytes=2048",)
"""So that there are files before the last one that the disk has not taken yet."""
_CHECK_EVERY = 50
_LOGS_EVERY = 10_000
_SERVES_S = 15
"""So soon after the last fault every partition has a leader, enough replicas in sync, and commits what it has. Sessions
end after two seconds, and brokers that do not answer count as dead after three; a leader with a damaged log gives way
within ten."""
_SETTLE_S = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What came of a run. `violation` is None when everything held."""

    seed: int
    steps: int
    seconds: float
    acknowledged: int
    read: int
    committed: int
    moved: int
    restarts: int
    trace_hash: str
    violation: str | None = None
    trace: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        verdict = "everything held" if self.violation is None else f"VIOLATION: {self.violation}"
        return (
            f"seed {self.seed}: {self.steps} steps, {self.seconds:.1f} s, {self.acknowledged} records acknowledged, "
            f"{self.read} read, offset {self.committed} committed, {self.moved} moved, {self.restarts} restarts, "
            f"trace {self.trace_hash}: "
            f"{verdict}"
        )


class Simulation:
    def __init__(self, seed: int, directory: str, *, transactions: bool = False, focus: Focus | None = None) -> None:
        """`transactions`: a bank is part of the load."""
        self.seed = seed
        self.accounts = Accounts() if transactions else None
        self.world = World(seed)
        self.network = Network(self.world)
        self.store = StoreServer(self.world, self.network)
        self.history = History()
        brokers = list(range(1, self.world.random.choice((3, 3, 4)) + 1))
        settings = SHORT_SEGMENTS if focus is Focus.DISKS else ()
        self.machines = [
            Machine(self.world, self.network, self.store, directory, broker, settings) for broker in brokers
        ]
        self.invariants = Invariants(self.history, self.store, self.machines)
        if self.accounts is not None:
            self.invariants.bank = BankInvariants(self.accounts, self.invariants, self.machines)
        self.faults = Faults(self.world, self.network, self.store, self.machines, self.invariants, focus=focus)
        self.clients = self._make_clients(brokers)

    def _make_clients(self, brokers: list[int]) -> list[Client]:
        def who(name: str) -> tuple[Any, ...]:
            return self.world, self.network, self.history, name, brokers

        leader = self.invariants.leader
        bank: list[Client] = []
        accounts, topics = self.accounts, (STEADY, LOOSE)
        if accounts is not None:
            topics = (*topics, BANK)
            bank = [
                Mover(*who("mover-1"), accounts=accounts, invariants=self.invariants, new=True),
                Mover(*who("mover-2"), accounts=accounts, invariants=self.invariants, new=False),
                CommittedReader(*who("auditor"), accounts=accounts),
            ]
        return [
            Administrator(*who("admin"), topics=topics),
            Producer(*who("all"), acks=-1, idempotent=False, leader=leader),
            Producer(*who("once"), acks=-1, idempotent=True, leader=leader),
            Producer(*who("one"), acks=1, idempotent=False, leader=leader),
            Consumer(*who("reader-1")),
            Consumer(*who("reader-2")),
            Committer(*who("group"), leader=leader),
            *bank,
        ]

    def run(self, steps: int) -> None:
        """Violation when something does not hold."""
        for machine in self.machines:
            machine.start()
        for client in self.clients:
            client.loop.start(self._noting_failure(client))
        self.world.after(2.0, self.faults.begin)
        while self.world.steps < steps:
            self._step()
        self.faults.end()
        self._settle()
        self.invariants.check_converged()

    async def _noting_failure(self, client: Client) -> None:
        try:
            await client.run()
        except Exception as error:
            self.world.troubles.append(f"{type(error).__name__}: {error}")
            raise

    def _step(self) -> None:
        world = self.world
        assert world.step()
        if world.steps % _CHECK_EVERY == 0:
            self.invariants.check()
        if world.steps % _LOGS_EVERY == 0:
            self.invariants.check_logs()

    def _settle(self) -> None:
        """Clients have their last answers, then the cluster becomes whole."""
        for client in self.clients:
            client.loop.die()
        begin_s = self.world.now
        while self.invariants.unconverged() is not None:
            if self.world.now > begin_s + _SERVES_S and (unserved := self.invariants.unserved()) is not None:
                raise Violation(f"not served {_SERVES_S} s after the last fault: {unserved}")
            if self.world.now > begin_s + _SETTLE_S:
                raise Violation(f"not whole {_SETTLE_S} s after the last fault: {self.invariants.unconverged()}")
            for _ in range(_CHECK_EVERY):
                self._step()

    def report(self, violation: str | None) -> Report:
        return Report(
            seed=self.seed,
            steps=self.world.steps,
            seconds=self.world.now,
            acknowledged=sum(map(len, self.history.acked.values())),
            read=sum(map(len, self.history.read.values())),
            committed=self.history.committed,
            moved=0 if self.accounts is None else self.accounts.moved,
            restarts=sum(machine.starts for machine in self.machines) - len(self.machines),
            trace_hash=self.world.trace_hash,
            violation=violation,
            trace=list(self.world.lines),
        )


def run(seed: int, steps: int, *, transactions: bool = False, focus: Focus | None = None) -> Report:
    directory = tempfile.mkdtemp(prefix="kafkad-sim-")
    simulation = Simulation(seed, directory, transactions=transactions, focus=focus)
    try:
        with (
            simulation.world.governed(),
            mock.patch("kafkad.net.client._socket_to", simulation.network.connect),
            _proposals_are_seen(simulation.invariants),
            _errors_are_troubles(simulation.world, directory),
        ):
            try:
                simulation.run(steps)
            except Violation as violation:
                return simulation.report(str(violation))
            finally:
                for machine in simulation.machines:
                    machine.kill()
                for client in simulation.clients:
                    client.loop.die()
        return simulation.report(None)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


class _Troubles(logging.Handler):
    """An internal error that a broker logs is one that it should not have."""

    def __init__(self, world: World, directory: str) -> None:
        super().__init__()
        self._world = world
        self._directory = directory

    def emit(self, record: logging.LogRecord) -> None:
        if self._world.burying:
            return
        message = record.getMessage().replace(self._directory, "")
        self._world.note("log", record.levelname, record.name, message)
        if record.exc_info or "internal error" in message:
            why = repr(record.exc_info[1]) if record.exc_info else ""
            self._world.troubles.append(f"{message} {why}")


@contextmanager
def _proposals_are_seen(invariants: Invariants) -> Iterator[None]:
    true_propose = Partition._propose

    def propose(self: Partition, isr: tuple[int, ...] | None) -> None:
        if isr is not None:
            invariants.proposed(self, isr)
        true_propose(self, isr)

    with mock.patch.object(Partition, "_propose", propose):
        yield


@contextmanager
def _errors_are_troubles(world: World, directory: str) -> Iterator[None]:
    handler = _Troubles(world, directory)
    log = logging.getLogger("kafkad")
    propagate, log.propagate = log.propagate, False
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = propagate
