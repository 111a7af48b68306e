"""The dynamic settings of topics and brokers, kept in memory as the metadata store has them.

They are read at the start. A change leaves a sequential note under `/config/changes` that names the entity; brokers
then read that entity again. Notes name users, clients and addresses too, which `entities` keeps.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from kafkad.clock import Clock
from kafkad.cluster.entities import EntityConfigs
from kafkad.cluster.notify import notify_all
from kafkad.meta.notes import Note, Notes, follow
from kafkad.meta.readable import readable
from kafkad.meta.retrying import until_answered
from kafkad.meta.store import MetaStore, NoNode, OutOfReach
from kafkad.meta.znodes import DEFAULT_ENTITY, Config, ConfigChange
from kafkad.timers import Timers

log = logging.getLogger(__name__)

Overrides = Mapping[str, str]
Listener = Callable[[str, Overrides], None]
"""Called with the name of a topic or a broker, or `<default>`, and all its overrides."""

_READ_AT_ONCE = 100

_NONE: Overrides = MappingProxyType({})


class DynamicConfigs:
    """`broker` are the overrides of this broker, `cluster` those of all brokers."""

    def __init__(self, store: MetaStore, broker: int, clock: Clock, timers: Timers) -> None:
        self.broker: Overrides = _NONE
        self.cluster: Overrides = _NONE
        self.entities = EntityConfigs(store)
        self._store = store
        self._broker = str(broker)
        self._clock = clock
        self._timers = timers
        self._topics: dict[str, Overrides] = {}
        self._meanwhile: set[str] | None = None
        """While all there is is read: topics that were loaded or forgotten since that began."""
        self._listeners: dict[str, list[Listener]] = {}
        self._news = asyncio.Event()
        self._notes = Notes(store, ConfigChange.PREFIX, clock, self._news)
        self._reading = asyncio.Lock()
        self._turn = asyncio.Lock()
        """Whose turn it is to read what clients have asked for."""
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Reads all there is. Listeners hear of later changes only."""
        await self._read_all()
        self._task = asyncio.create_task(
            follow(self._news, self.catch_up, "read changes of settings", self._clock, self._timers)
        )

    async def session_renewed(self) -> None:
        """Reads all there is again: notes of changes may have come and gone while there was no session."""
        async with self._reading:
            cluster, broker, topics = self.cluster, self.broker, self._topics
            await self._read_all()
            if cluster != self.cluster:
                self._tell(Config.BROKERS, DEFAULT_ENTITY, self.cluster)
            if broker != self.broker:
                self._tell(Config.BROKERS, self._broker, self.broker)
            for name in topics.keys() | self._topics.keys():
                if topics.get(name, _NONE) != self.topic(name):
                    self._tell(Config.TOPICS, name, self.topic(name))

    async def _read_all(self) -> None:
        meanwhile = self._meanwhile = set()
        last = await self._notes.newest()
        cluster = await self._read(f"{Config.BROKERS}/{DEFAULT_ENTITY}")
        broker = await self._read(f"{Config.BROKERS}/{self._broker}")
        topics: dict[str, Overrides] = {}
        with contextlib.suppress(NoNode):
            names = await self._store.children(Config.path(Config.TOPICS))
            topics = {name: found for name, found in await self._read_topics(names) if found}
        await self.entities.read_all()
        while meanwhile:
            again = list(meanwhile)
            meanwhile.clear()
            for name, found in await self._read_topics(again):
                _keep(topics, name, found)
        self._meanwhile = None
        self._notes.skip(last)
        self.cluster, self.broker, self._topics = cluster, broker, topics

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def topic(self, name: str) -> Overrides:
        return self._topics.get(name, _NONE)

    def listen(self, kind: str, listener: Listener) -> None:
        """`kind` is Config.TOPICS or BROKERS: of these, this broker and `<default>` only."""
        self._listeners.setdefault(kind, []).append(listener)

    async def load_topics(self, names: Iterable[str]) -> None:
        """For topics that this broker gets to hold: making a topic leaves no note. Waits for a store that is away."""
        wanted = list(names)
        if not wanted:
            return
        read = partial(self._read_topics, wanted)
        for name, overrides in await until_answered(
            read, "read the settings of topics that this broker is to hold", self._clock, self._timers
        ):
            _keep(self._topics, name, overrides)
            self._note(name)

    async def read_topics(self, names: Sequence[str]) -> dict[str, Overrides]:
        """As the store has them now, of topics that only others hold: what is kept of these here may be old. Raises
        ConnectionLoss or SessionExpired.

        Clients may ask for thousands, again and again. They take turns, and little of theirs is ever under way.
        """
        found: dict[str, Overrides] = {}
        for at in range(0, len(names), _READ_AT_ONCE):
            async with self._turn:
                found |= await self._read_topics(names[at : at + _READ_AT_ONCE])
        return found

    async def _read_topics(self, names: Sequence[str]) -> list[tuple[str, Overrides]]:
        nodes = await self._store.get_many([Config.path(f"{Config.TOPICS}/{name}") for name in names])
        return [
            (name, _decoded(f"{Config.TOPICS}/{name}", node[0]) if node is not None else _NONE)
            for name, node in zip(names, nodes, strict=True)
        ]

    def forget_topics(self, names: Iterable[str]) -> None:
        """Deleted ones: that leaves no note."""
        for name in names:
            self._topics.pop(name, None)
            self._note(name)

    def _note(self, topic: str) -> None:
        if self._meanwhile is not None:
            self._meanwhile.add(topic)

    async def catch_up(self) -> None:
        """Takes in all changes written before this call; their listeners have been called when it returns."""
        async with self._reading:
            await self._notes.take(self._read_again)

    async def catch_up_if_possible(self) -> None:
        """The same, if the store can be reached. If not, the changes are taken in once it can."""
        with contextlib.suppress(OutOfReach):
            await self.catch_up()

    async def _read_again(self, notes: list[Note]) -> None:
        named = [readable(path, partial(ConfigChange.decode, data)) for path, data in notes if data is not None]
        for entity in dict.fromkeys(named):
            if entity is not None:
                await self._changed(entity)

    async def _changed(self, entity: str) -> None:
        kind, _, name = entity.partition("/")
        if kind == Config.BROKERS and name not in (self._broker, DEFAULT_ENTITY):
            return
        if kind in (Config.USERS, Config.CLIENTS, Config.IPS):
            await self.entities.changed(entity)
            return
        overrides = await self._read(entity)
        if kind == Config.TOPICS:
            _keep(self._topics, name, overrides)
        elif kind == Config.BROKERS and name == DEFAULT_ENTITY:
            self.cluster = overrides
        elif kind == Config.BROKERS:
            self.broker = overrides
        self._tell(kind, name, overrides)

    def _tell(self, kind: str, name: str, overrides: Overrides) -> None:
        notify_all(self._listeners.get(kind, ()), name, overrides)

    async def _read(self, entity: str) -> Overrides:
        try:
            return _decoded(entity, (await self._store.get(Config.path(entity)))[0])
        except NoNode:
            return _NONE


def _keep(topics: dict[str, Overrides], topic: str, overrides: Overrides) -> None:
    if overrides:
        topics[topic] = overrides
    else:
        topics.pop(topic, None)


def _decoded(entity: str, data: bytes) -> Overrides:
    """An unreadable node must not keep the broker from starting: it counts as empty."""
    if data == _EMPTY:
        return _NONE
    try:
        return Config.decode(data)
    except ValueError as e:
        log.error("the settings in %s cannot be read, and are ignored: %s", Config.path(entity), e)
        return _NONE


_EMPTY = Config.encode({})
