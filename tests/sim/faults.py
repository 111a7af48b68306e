"""Faults, drawn one after another; each is mended after a while, whatever else has happened by then."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.sim.machines import Machine, stop_cleanly
from tests.sim.network import Network
from tests.sim.store import STORE, StoreServer
from tests.sim.world import World

Mend = Callable[[], None]


class Faults:
    def __init__(self, world: World, network: Network, store: StoreServer, machines: list[Machine]) -> None:
        self._world = world
        self._network = network
        self._store = store
        self._machines = machines
        self._mends: dict[object, Mend] = {}
        self._going = False

    def begin(self) -> None:
        self._going = True
        self._next()

    def end(self) -> None:
        """No more of them, and all are mended."""
        self._going = False
        mends, self._mends = list(self._mends.values()), {}
        for mend in mends:
            mend()
        self._network.heal_all()
        self._network.slow = 1.0
        for machine in self._machines:
            machine.resume()
            machine.start()

    def _next(self) -> None:
        self._world.after(self._world.random.expovariate(1 / 0.5), self._strike)

    def _strike(self) -> None:
        if not self._going:
            return
        random = self._world.random
        machine = random.choice(self._machines)
        kinds = (
            self._kill,
            self._kill,
            self._stop,
            self._pause,
            self._cut_between,
            self._cut_between,
            self._isolate,
            self._cut_from_store,
            self._lose_answers,
            self._lose_answers,
            self._expire,
            self._reset,
            self._slow_down,
        )
        random.choice(kinds)(machine, random)
        self._next()

    def _mend_later(self, seconds: float, mend: Mend) -> None:
        key = object()

        def mended() -> None:
            if self._mends.pop(key, None) is not None:
                mend()

        self._mends[key] = mend
        self._world.after(seconds, mended)

    # -- kinds -------------------------------------------------------------------------------------------------------

    def _kill(self, machine: Machine, random: Random) -> None:
        machine.kill()
        self._mend_later(random.choice((0.05, 0.5, 3.0)) * random.uniform(0.5, 2), machine.start)

    def _stop(self, machine: Machine, random: Random) -> None:
        if machine.parts is not None and machine.loop is not None and not machine.loop.paused:
            stop_cleanly(machine)
            self._mend_later(random.uniform(0.5, 4), machine.start)

    def _pause(self, machine: Machine, random: Random) -> None:
        machine.pause()
        self._mend_later(random.choice((0.3, 3.0)) * random.uniform(0.5, 2), machine.resume)

    def _cut_between(self, machine: Machine, random: Random) -> None:
        other = random.choice([each for each in self._machines if each is not machine])
        self._cut([(machine.name, other.name), (other.name, machine.name)][: random.choice((1, 2))], random)

    def _isolate(self, machine: Machine, random: Random) -> None:
        """From the other brokers; the store may still be reached."""
        others = [each.name for each in self._machines if each is not machine]
        self._cut([(machine.name, other) for other in others] + [(other, machine.name) for other in others], random)

    def _cut_from_store(self, machine: Machine, random: Random) -> None:
        self._cut([(machine.name, STORE), (STORE, machine.name)][: random.choice((1, 2))], random)

    def _cut(self, ends: list[tuple[str, str]], random: Random) -> None:
        self._world.note("cut", *(f"{source}>{target}" for source, target in ends))
        for each in ends:
            self._network.cut(*each)

        def mend() -> None:
            self._world.note("heal", *(f"{source}>{target}" for source, target in ends))
            for each in ends:
                self._network.heal(*each)

        self._mend_later(random.choice((0.3, 2.0, 5.0)) * random.uniform(0.5, 1.5), mend)

    def _lose_answers(self, machine: Machine, random: Random) -> None:
        """Its connection to the store breaks; soon it has another."""
        if machine.session is not None:
            self._world.note("break", machine.name, STORE)
            machine.session.break_connection()

    def _expire(self, machine: Machine, random: Random) -> None:
        if machine.session is not None:
            self._store.expire(machine.session.number)

    def _reset(self, machine: Machine, random: Random) -> None:
        self._world.note("reset", machine.name)
        self._network.reset_one(machine.name)

    def _slow_down(self, machine: Machine, random: Random) -> None:
        self._network.slow = random.choice((5.0, 30.0))
        self._world.note("slow", self._network.slow)

        def mend() -> None:
            self._network.slow = 1.0

        self._mend_later(random.uniform(0.5, 3), mend)
