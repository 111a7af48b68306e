"""Takes replicas that have lost committed records out of the ISRs in the metadata store, before this broker registers.

With the registration a controller may elect one of them, and the same write takes all members that are down out of the
ISR: who has the records could not lead any more. So it has to happen before. The write is one that brokers of before
Kafka 2.7 made, too: only the ISR, on the version that was read, with a note for the controller; a controller that
decides at the same moment finds that the version is another, and reads again.

The last member stays, as only it can say where the records were (`replica/lost_tails`), and nothing is written while
another registered broker leads: that one keeps the ISR.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial

from kafkad.meta.readable import readable
from kafkad.meta.store import BadVersion, MetaStore
from kafkad.meta.znodes import BROKER_IDS, IsrChange, Partition, Topic
from kafkad.names import TopicId, TopicPartition

log = logging.getLogger(__name__)


async def leave_isrs(store: MetaStore, broker: int, lost: Mapping[TopicPartition, TopicId]) -> None:
    """`lost` are the replicas with the ids of their topics."""
    if not lost:
        return
    registered = set(await store.children(BROKER_IDS))
    left = [tp for tp, topic_id in lost.items() if await _leave(store, broker, tp, topic_id, registered)]
    if left:
        await store.create(IsrChange.PREFIX, IsrChange.encode(left), sequential=True)


async def _leave(
    store: MetaStore, broker: int, tp: TopicPartition, topic_id: TopicId, registered: Collection[str]
) -> bool:
    path = Partition.path(*tp)
    while True:
        nodes = await store.get_many([Topic.path(tp.topic), path])
        if nodes[0] is None or nodes[1] is None:
            return False
        topic = readable(Topic.path(tp.topic), partial(Topic.decode, nodes[0][0]))
        state = readable(path, partial(Partition.decode, nodes[1][0], nodes[1][1].version))
        if topic is None or state is None or topic.topic_id != topic_id:
            return False
        isr = tuple(member for member in state.isr if member != broker)
        led_elsewhere = state.leader != broker and str(state.leader) in registered
        if len(isr) in (0, len(state.isr)) or led_elsewhere:
            return False
        try:
            await store.set(path, Partition.encode(replace(state, isr=isr)), state.partition_epoch)
        except BadVersion:
            continue
        log.error("the log of %s has lost committed records: broker %d is not in sync until it has them", tp, broker)
        return True
