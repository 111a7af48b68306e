"""Faults, drawn one after another; each is mended after a while, whatever else has happened by then."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from random import Random

from kafkad.meta.store import Delete
from kafkad.meta.znodes import Controller
from tests.sim.invariants import FEWEST, Invariants
from tests.sim.machines import Machine, stop_cleanly
from tests.sim.network import Network
from tests.sim.store import STORE, StoreServer
from tests.sim.world import World

Mend = Callable[[], None]
Fault = Callable[[Machine, Random], None]

_LOOK_S = 0.1
_WELL_S = 1.0
_PATIENCE = 300
"""Looks."""
_AT_ONCE_S = 0.02
_HELD_S = (1.0, 4.0)
_SOON_S = (0.2, 0.6)
"""Until sessions that ended are noticed and everybody has said what follows from it."""


class Focus(Enum):
    """Faults that are rare among all kinds, and half of those of a run that looks for what only they show."""

    LATE = "late"
    """Controllers and leaders are heard, or go, when what they say is no longer true. Disks are hurt by none, for that
    has to be by itself."""
    DISKS = "disks"


_DISK_ONE_IN = {None: 12, Focus.DISKS: 2}


class Faults:
    def __init__(
        self,
        world: World,
        network: Network,
        store: StoreServer,
        machines: list[Machine],
        invariants: Invariants,
        *,
        focus: Focus | None = None,
    ) -> None:
        self._invariants = invariants
        self._focus = focus
        self._world = world
        self._network = network
        self._store = store
        self._machines = machines
        self._well_since: float | None = None
        self._mends: dict[object, Mend] = {}
        self._hurts = 0
        """How many times the disk of a machine was hurt."""
        self._going = False

    def begin(self) -> None:
        self._going = True
        self._next()

    def end(self) -> None:
        """No more of them, and all are mended."""
        self._going = False
        self._mend_all()

    def _mend_all(self) -> None:
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
            self._depose,
            self._reset,
            self._slow_down,
        )
        if self._focus is not Focus.LATE and random.randrange(_DISK_ONE_IN[self._focus]) == 0:
            self._mend_all()
            self._well_since = None
            self._when(self._is_well, lambda: self._hurt(machine, random), self._next)
            return
        if self._focus is Focus.LATE and random.random() < 0.5:
            kinds = self._hold_up_controller, self._hold_up_leader, self._go_after_a_shrink
        random.choice(kinds)(machine, random)
        self._next()

    def _is_well(self) -> bool:
        """For long enough that a new controller has said who is in sync."""
        now = self._world.now
        if self._invariants.unwell() is not None:
            self._well_since = None
        elif self._well_since is None:
            self._well_since = now
        return self._well_since is not None and now - self._well_since >= _WELL_S

    def _when(
        self,
        holds: Callable[[], bool],
        then: Mend,
        otherwise: Mend,
        patience: int = _PATIENCE,
        every_s: float = _LOOK_S,
    ) -> None:
        """As soon as something holds; `otherwise` when that takes too long."""
        if not self._going:
            return
        if holds():
            then()
        elif patience == 0:
            otherwise()
        else:
            self._world.after(every_s, self._when, holds, then, otherwise, patience - 1, every_s)

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

    def _depose(self, machine: Machine, random: Random) -> None:
        """An operator deletes the controller's node, as one does with Kafka to have another one elected. The controller
        may hear of it late."""
        active = self._controller()
        if active is not None:
            self._world.note("depose", active)
            self._store.write([Delete(Controller.path())], 0)
            if random.random() < 0.5:
                active.pause()
                self._mend_later(random.uniform(0.1, 1.0), active.resume)

    def _hold_up_controller(self, machine: Machine, random: Random) -> None:
        """What the controller says to a broker when another one goes arrives after the next controller has elected."""
        active = self._controller()
        if active is None or active is machine:
            return
        self._hold_requests(active, machine, random)
        self._expire(self._another(random, active, machine), random)
        self._soon(random, lambda: self._expire(active, random))

    def _hold_up_leader(self, machine: Machine, random: Random) -> None:
        """That a follower is in sync again is heard by the controller when both have been replaced."""
        active = self._controller()
        if active is None or active is machine:
            return
        follower = self._another(random, active, machine)
        self._hold_requests(machine, active, random)
        self._expire(follower, random)

        def gone() -> None:
            follower.pause()
            self._mend_later(random.uniform(*_HELD_S) + 1, follower.resume)
            self._expire(follower, random)
            self._expire(machine, random)

        self._soon(random, gone)

    def _hold_requests(self, source: Machine, target: Machine, random: Random) -> None:
        self._world.note("hold requests", source.name, target.name)
        self._network.hold_requests(source.name, target.name)
        self._mend_later(random.uniform(*_HELD_S), lambda: self._network.heal(source.name, target.name))

    def _soon(self, random: Random, strike: Callable[[], None]) -> None:
        self._world.after(random.uniform(*_SOON_S), lambda: strike() if self._going else None)

    def _go_after_a_shrink(self, machine: Machine, random: Random) -> None:
        """A leader goes when it has just dropped a follower: the next one does not know yet what was committed then,
        and the follower comes to it without that."""
        whole = [
            (place, state)
            for place, state in sorted(self._invariants.states().items())
            if state.leader >= 0 and len(state.isr) >= FEWEST
        ]
        if not whole:
            return
        place, state = random.choice(whole)
        leader = self._broker(state.leader)
        follower = self._broker(random.choice([broker for broker in state.isr if broker != state.leader]))
        ends = (leader.name, follower.name), (follower.name, leader.name)
        for each in ends:
            self._network.cut(*each)

        def dropped() -> bool:
            now = self._invariants.states().get(place)
            return now is None or follower.broker not in now.isr

        def heal() -> None:
            for each in ends:
                self._network.heal(*each)

        def go() -> None:
            heal()
            self._pause(leader, random)
            self._expire(leader, random)

        self._when(dropped, go, heal, every_s=_AT_ONCE_S)

    def _broker(self, number: int) -> Machine:
        return next(each for each in self._machines if each.broker == number)

    def _another(self, random: Random, *but: Machine) -> Machine:
        return random.choice([each for each in self._machines if each not in but])

    def _reset(self, machine: Machine, random: Random) -> None:
        self._world.note("reset", machine.name)
        self._network.reset_one(machine.name)

    def _slow_down(self, machine: Machine, random: Random) -> None:
        self._network.slow = random.choice((5.0, 30.0))
        self._world.note("slow", self._network.slow)

        def mend() -> None:
            self._network.slow = 1.0

        self._mend_later(random.uniform(0.5, 3), mend)

    # -- disks ---------------------------------------------------------------------------------------------------------

    def _hurt(self, machine: Machine, random: Random) -> None:
        """One machine loses what its disk did not keep. The cluster is well, and hardly anything else happens before
        the machine is whole again: so there is always a replica that has everything, and nothing may be lost."""
        self._invariants.wound(machine)
        self._hurts += 1
        active = self._controller()
        case = random.randrange(4)
        if case == 0 and active not in (None, machine):
            self._come_back_between_controllers(machine, active, random)
        elif case == 1:
            self._come_back_first(machine, random)
        else:
            kinds = (
                self._lose_power,
                self._lose_power,
                self._flip_bits,
                self._damage_checkpoint,
                self._replace_disk,
            )
            random.choice(kinds)(machine, random)
            self._world.after(random.choice((0.05, 0.5, 3.0)) * random.uniform(0.5, 2), machine.start)
            other = random.choice([each for each in self._machines if each is not machine])
            meanwhile = random.choice((self._nothing, self._kill, self._stop, self._expire))
            self._world.after(random.uniform(0, 4), self._while_hurt, self._hurts, meanwhile, other, random)
        self._when(
            lambda: not self._invariants.wounded and all(each.parts is not None for each in self._machines),
            self._next,
            self._unhealed,
        )

    def _while_hurt(self, number: int, fault: Fault, machine: Machine, random: Random) -> None:
        """Not when another machine is hurt by now: there would be one too few that has everything."""
        if number == self._hurts:
            fault(machine, random)

    def _come_back_between_controllers(self, machine: Machine, active: Machine, random: Random) -> None:
        """The controller does not see it go, and the next one not that it was away."""
        after, sessions = self._world.after, (machine.session, active.session)
        gone, deposed = (0 if session is None else session.number for session in sessions)
        active.pause()
        self._lose_power(machine, random)
        after(0.01, self._store.expire, gone)
        after(0.02, machine.start)
        after(random.uniform(0.3, 1.0), self._store.expire, deposed)
        self._mend_later(1.5, active.resume)

    def _come_back_first(self, machine: Machine, random: Random) -> None:
        """All go down, and the first one up lacks what it had known to be committed."""
        for each in self._machines:
            each.kill()
            self._mend_later(random.uniform(3.0, 5.0), each.start)
        if random.randrange(3) == 0:
            self._replace_disk(machine, random)
        else:
            for place, directory in self._invariants.directories(machine.broker):
                self._world.note("cut", place, machine.files.cut_below_watermark(random, directory))
        self._world.after(2.5, machine.start)

    def _controller(self) -> Machine | None:
        node = self._store.store.find(Controller.path())
        owner = 0 if node is None else node.stat.ephemeral_owner
        holds = (each for each in self._machines if each.session is not None and each.session.number == owner)
        return next(holds, None)

    def _unhealed(self) -> None:
        self._world.troubles.append(f"still in the ISR without what was promised: {list(self._invariants.wounded)}")

    def _nothing(self, machine: Machine, random: Random) -> None:
        pass

    def _lose_power(self, machine: Machine, random: Random) -> None:
        machine.lose_power(random.choice((0.0, 0.5, 0.9)))

    def _flip_bits(self, machine: Machine, random: Random) -> None:
        """Each partition is hurt at one replica only, so that the others have all of it."""
        machine.kill()
        hurt = {place for place, _ in self._invariants.flipped}
        for place, directory in self._invariants.directories(machine.broker):
            if place not in hurt:
                self._invariants.flipped[place, machine.broker] = None
                self._world.note("flip", place, machine.files.flip_a_bit(random, directory))

    def _replace_disk(self, machine: Machine, random: Random) -> None:
        machine.kill()
        self._world.note("replace disk", machine.name)
        machine.files.replace()

    def _damage_checkpoint(self, machine: Machine, random: Random) -> None:
        machine.kill()
        self._world.note("damage", machine.name, machine.files.damage_a_checkpoint(random))
