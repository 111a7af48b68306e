"""States of partitions, written together where that can be, and each by itself where one is in the way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kafkad.controller.leadership import ControllerParts, Leadership
from kafkad.controller.state import PartitionEntry, TopicEntry
from kafkad.meta.store import BadVersion, MultiFailed, NoNode, Operation, Stat
from kafkad.model import PartitionAssignment, PartitionState
from kafkad.names import TopicPartition


class Store:
    """Somebody else has written partition 0 and removed it, so that it cannot be read again."""

    async def multi(self, operations: Sequence[Operation]) -> list[Any]:
        for place, operation in enumerate(operations):
            if "/partitions/0/" in operation.path:
                raise MultiFailed(place, BadVersion(operation.path))
        return [None, *[Stat(0, 0, 0, 0, 1, 0, 0, 0)] * (len(operations) - 1)]

    async def get(self, path: str, watch: Any = None) -> Any:
        raise NoNode(path)


def test_one_that_cannot_be_read_again_keeps_back_no_other() -> None:
    store: Any = Store()
    lead = Leadership(
        ControllerParts(
            broker=1,
            store=store,
            connect=None,  # type: ignore[arg-type]
            unclean=lambda topic: False,
            on_response=None,  # type: ignore[arg-type]
            sleep=None,  # type: ignore[arg-type]
            now_ms=None,  # type: ignore[arg-type]
        ),
        1,
        1,
    )
    topic = TopicEntry("t", bytes(16))
    for number in range(3):
        state = PartitionState(leader=1, leader_epoch=0, isr=(1, 2), controller_epoch=1)
        topic.partitions[number] = PartitionEntry(PartitionAssignment(replicas=(1, 2)), state)
    lead.state.add_topic(topic)

    def shrunk(tp: TopicPartition, entry: PartitionEntry) -> PartitionState:
        assert entry.state is not None
        return replace(entry.state, isr=(1,))

    changed = asyncio.run(lead.change([TopicPartition("t", number) for number in range(3)], shrunk))
    assert [state and state.isr for _, state in sorted(changed.items())] == [None, (1,), (1,)]
