"""Takes replicas that have lost committed records out of the ISRs in the metadata store, before this broker registers.

Such are logs without their ends, and those that are gone with a log directory. That one is gone shows by this: the
partition is assigned to this broker and in none of the directories, and it is older than their last change. A partition
that is younger has never been made here. One that is not in sync counts, too: it may have left the ISR before an
earlier start.

With the registration a controller may elect one of them, and the same write takes all members that are down out of the
ISR: who has the records could not lead any more. So it has to happen before. The write is one that brokers of before
Kafka 2.7 made, too: only the ISR, on the version that was read, with a note for the controller; a controller that
decides at the same moment finds that the version is another, and reads again.

A controller that has just been elected tells by the last write of a state which members have come back since, perhaps
without their ends (`controller/loading`). This write would hide them from it, so it keeps only members that were there
all the time, if there are any, and the leader of whom the state says that it leads: it is dead, and who takes the state
over elects another.

The last member stays, as only it can say where the records were (`replica/lost_tails`), and nothing is written while
another broker leads: that one keeps the ISR. A leader that is registered and does not answer may be one that has died a
moment ago, as when a whole site loses its power. It is waited for until it answers, or its session is over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf

from kafkad.clock import Clock
from kafkad.controller.registration import present
from kafkad.meta.readable import readable
from kafkad.meta.store import BadVersion, MetaStore
from kafkad.meta.znodes import Broker, IsrChange, Partition, Topic, TopicDeletion
from kafkad.model import NO_LEADER, BrokerInfo, PartitionState
from kafkad.names import TopicId, TopicPartition, some
from kafkad.net.client import Link, LinkError
from kafkad.timers import Timers, sleep
from kafkad.turns import Turns
from kafkad.wire.messages.metadata import MetadataRequest

log = logging.getLogger(__name__)

_LONGEST_ANSWER_MS = 1_000
_ANSWER_COUNTS_MS = 1_000
"""Thousands of replicas may have the same leader."""
_BETWEEN_LOOKS_MS = 100


class OtherBrokers:
    """Asks brokers that lead, or are in sync, by what the store says whether they live."""

    def __init__(
        self,
        store: MetaStore,
        links: Callable[[BrokerInfo], Link],
        *,
        clock: Clock,
        timers: Timers,
        patience_ms: float,
    ) -> None:
        """`patience_ms` is longer than a session outlives its process."""
        self._store = store
        self._links = links
        self._clock = clock
        self._timers = timers
        self._deadline_ms = clock.monotonic_ms() + patience_ms
        self._told: set[int] = set()
        self._answered_ms: dict[int, float] = {}

    async def lives(self, broker: int) -> bool:
        """True also of one that stays registered without an answer: it cannot be reached from here."""
        while (found := await present(self._store, broker)) is not None:
            if found.registration is None or self._clock.monotonic_ms() >= self._deadline_ms:
                return True
            if await self._answers(found.registration.broker):
                return True
            if broker not in self._told:
                self._told.add(broker)
                log.warning(
                    "replicas here have lost committed records, and broker %d, which leads them or is in sync, does "
                    "not answer: waiting until it does, or its session is over",
                    broker,
                )
            await sleep(_BETWEEN_LOOKS_MS, self._clock, self._timers)
        return False

    async def _answers(self, broker: BrokerInfo) -> bool:
        if self._clock.monotonic_ms() - self._answered_ms.get(broker.id, -inf) < _ANSWER_COUNTS_MS:
            return True
        link = self._links(broker)
        try:
            await link.call(MetadataRequest(topics=[]), timeout_ms=_LONGEST_ANSWER_MS)
        except LinkError:
            return False
        finally:
            link.close()
        self._answered_ms[broker.id] = self._clock.monotonic_ms()
        return True


async def gone_replicas(
    store: MetaStore, missing: Mapping[TopicPartition, TopicId], before: int
) -> dict[TopicPartition, TopicId]:
    """Those of the `missing`, which are in no log directory, that had a leader before that transaction."""
    nodes = await store.get_many([Partition.path(*tp) for tp in missing])
    gone = {
        tp: topic_id
        for (tp, topic_id), node in zip(missing.items(), nodes, strict=True)
        if node is not None and node[1].czxid < before
    }
    if gone:
        log.warning("in no log directory: %d replicas, %s", len(gone), some(sorted(gone)))
    return gone


async def leave_isrs(
    store: MetaStore,
    broker: int,
    lost: Mapping[TopicPartition, TopicId],
    gone: Mapping[TopicPartition, TopicId],
    others: OtherBrokers,
) -> None:
    """`lost` are the replicas that lack records, `gone` those in no log directory, with the ids of their topics."""
    deleted = set(await store.children(TopicDeletion.PARENT))
    ids = {**lost, **gone}
    left = []
    for tp in await _in_sync(store, broker, [tp for tp in ids if tp.topic not in deleted]):
        if await _leave(store, broker, tp, ids[tp], others):
            what = "is in no log directory" if tp in gone else "has lost committed records"
            log.error("the log of %s %s: broker %d is not in sync until it has all records", tp, what, broker)
            left.append(tp)
    if left:
        await store.create(IsrChange.PREFIX, IsrChange.encode(left), sequential=True)


async def _in_sync(store: MetaStore, broker: int, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
    """Of many replicas those that may have an ISR to leave."""
    found = []
    turns = Turns()
    nodes = await store.get_many([Partition.path(*tp) for tp in partitions])
    for tp, node in zip(partitions, nodes, strict=True):
        await turns.give_way()
        if node is not None:
            state = readable(Partition.path(*tp), partial(Partition.decode, node[0], node[1].version))
            if state is not None and broker in state.isr:
                found.append(tp)
    return found


async def _leave(store: MetaStore, broker: int, tp: TopicPartition, topic_id: TopicId, others: OtherBrokers) -> bool:
    path = Partition.path(*tp)
    led: PartitionState | None = None
    """With a leader that lives; it may have lost the partition while it was asked."""
    while True:
        nodes = await store.get_many([Topic.path(tp.topic), path])
        if nodes[0] is None or nodes[1] is None:
            return False
        topic = readable(Topic.path(tp.topic), partial(Topic.decode, nodes[0][0]))
        state = readable(path, partial(Partition.decode, nodes[1][0], nodes[1][1].version))
        if topic is None or state is None or topic.topic_id != topic_id:
            return False
        isr = tuple(member for member in state.isr if member != broker)
        if len(isr) in (0, len(state.isr)) or state == led:
            return False
        if state.leader not in (broker, NO_LEADER) and await others.lives(state.leader):
            led = state
            continue
        if stayed := await _stayed(store, isr, nodes[1][1].mzxid, others):
            isr = tuple(member for member in isr if member in stayed or member == state.leader)
        try:
            await store.set(path, Partition.encode(replace(state, isr=isr)), state.partition_epoch)
        except BadVersion:
            continue  # who wrote it has left out those that had come back by then
        return True


async def _stayed(store: MetaStore, members: tuple[int, ...], written: int, others: OtherBrokers) -> tuple[int, ...]:
    """Those that live and are registered, and were before the transaction in which the ISR was `written`.

    One that is down now is none of them: it may register before the ISR is written again. Nor is one whose session
    outlives it.
    """
    living = [member for member in members if await others.lives(member)]
    registrations = await store.get_many([Broker.path(member) for member in living])
    return tuple(
        member
        for member, node in zip(living, registrations, strict=True)
        if node is not None and node[1].czxid <= written
    )
