"""What a controller writes: states in batches, and what the store refuses or loses keeps back nothing else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest

from kafkad.controller.topics import NewTopic
from kafkad.errors import ErrorCode, KafkaError
from kafkad.meta.embedded import EmbeddedSession
from kafkad.meta.store import ConnectionLoss, Operation, Refused, Result
from kafkad.meta.znodes import Partition, ProducerIdBlock
from kafkad.model import PartitionState, WantedIsr
from kafkad.names import TopicPartition

from .cluster import A0, Cluster, with_brokers


@with_brokers(1)
async def test_a_store_that_cannot_write_refuses_and_goes_on_later(cluster: Cluster) -> None:
    member = cluster.members[1]
    working = member.session.multi

    async def broken(operations: Sequence[Operation]) -> list[Result]:
        raise ConnectionLoss("metadata", "No space left on device")

    member.session.multi = broken  # type: ignore[method-assign]
    (result,) = await cluster.controller.create_topics([NewTopic(name="a")], timeout_ms=1000)
    assert result.error is not None
    assert result.error.code == ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(KafkaError, match="No space left") as refusal:
        await cluster.controller.allocate_producer_ids(1, member.epoch)
    assert refusal.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    member.session.multi = working  # type: ignore[method-assign]
    await cluster.create("a", (1,))


@with_brokers(1)
async def test_a_store_that_refuses_an_operation_refuses_the_request(cluster: Cluster) -> None:
    await cluster.client.delete(ProducerIdBlock.path())
    with pytest.raises(KafkaError, match="NoNode") as refusal:
        await cluster.controller.allocate_producer_ids(1, cluster.members[1].epoch)
    assert refusal.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    await cluster.create("a", (1,))


def states_written(session: EmbeddedSession, first: Callable[[list[str]], Awaitable[None]] | None = None) -> list[int]:
    """The number of partitions' states in each write of a controller from now on, and `first` before the first one."""
    writes: list[int] = []
    working = session.multi

    async def noting(operations: Sequence[Operation]) -> list[Result]:
        states = [operation.path for operation in operations if operation.path.endswith("/state")]
        writes.append(len(states))
        if first is not None and len(writes) == 1:
            await first(states)
        return await working(operations)

    session.multi = noting  # type: ignore[method-assign]
    return writes


@with_brokers(1, 2, 3)
async def test_elections_are_written_a_hundred_at_a_time(cluster: Cluster) -> None:
    await cluster.create("a", *[(2, 3)] * 250)
    writes = states_written(cluster.members[1].session)
    await cluster.kill(2)
    assert writes == [100, 100, 50]


@with_brokers(1, 2, 3)
async def test_one_state_that_somebody_else_wrote_or_removed_keeps_back_no_other(cluster: Cluster) -> None:
    await cluster.create("a", *[(2, 3)] * 5)

    async def meddle(states: list[str]) -> None:
        await cluster.client.set(states[1], (await cluster.client.get(states[1]))[0])
        await cluster.client.delete(states[3])

    writes = states_written(cluster.members[1].session, meddle)
    await cluster.kill(2)
    assert writes == [5, *[1] * 5, 1]
    assert [cluster[3].replicas[TopicPartition("a", number)].leader for number in (0, 1, 2, 4)] == [3] * 4
    assert (await cluster.state("a", 1)).leader == 3
    assert await cluster.client.exists("/brokers/topics/a/partitions/3/state") is None


@with_brokers(1, 2, 3)
async def test_a_state_that_the_store_refuses_keeps_back_no_other(cluster: Cluster) -> None:
    await cluster.create("a", *[(2, 3)] * 3)
    session = cluster.members[1].session
    working = session.multi

    async def refusing(operations: Sequence[Operation]) -> list[Result]:
        if any(operation.path == Partition.path("a", 1) for operation in operations):
            raise Refused(Partition.path("a", 1), "ZooKeeper refused the request: NoAuthError")
        return await working(operations)

    session.multi = refusing  # type: ignore[method-assign]
    wanted = WantedIsr(members={2: -1}, leader_epoch=0, partition_epoch=0)
    parts = [TopicPartition("a", number) for number in (0, 1)]
    shrunk, refused = (
        await cluster.controller.alter_isr(2, cluster.members[2].epoch, dict.fromkeys(parts, wanted))
    ).values()
    assert isinstance(shrunk, PartitionState)
    assert isinstance(refused, KafkaError)
    assert refused.code == ErrorCode.OPERATION_NOT_ATTEMPTED
    await cluster.settle()
    assert cluster[1].metadata[parts[0]].isr == [2]
    await cluster.kill(2)
    assert [cluster[3].replicas[TopicPartition("a", number)].leader for number in range(3)] == [-1, 2, 3]


class Flaky:
    """Lets a session lose the answers to writes, or the writes themselves, of paths that start with `prefix`."""

    def __init__(self, session: EmbeddedSession, prefix: str, *, carried_out: bool) -> None:
        self._session = session
        self._working = session.multi
        self._prefix = prefix
        self._carried_out = carried_out
        session.multi = self._multi  # type: ignore[method-assign]

    async def _multi(self, operations: Sequence[Operation]) -> list[Result]:
        concerned = any(operation.path.startswith(self._prefix) for operation in operations)
        if not concerned or self._carried_out:
            results = await self._working(operations)
            if not concerned:
                return results
        raise ConnectionLoss(self._prefix, "lost")

    def heal(self) -> None:
        self._session.multi = self._working  # type: ignore[method-assign]


@pytest.mark.parametrize("carried_out", [False, True])
def test_states_written_while_the_store_was_lost_are_told_to_all_brokers(carried_out: bool) -> None:
    @with_brokers(1, 2, 3)
    async def test(cluster: Cluster) -> None:
        await cluster.create("a", (2, 3))
        flaky = Flaky(cluster.members[1].session, "/brokers/topics/a", carried_out=carried_out)
        await cluster.kill(2)
        flaky.heal()
        assert not cluster.members[1].controller.active
        cluster.members[1].controller._look_again()
        await cluster.settle()
        assert (await cluster.state("a")).leader == 3
        assert cluster[3].replicas[A0].leader == 3
        assert cluster[1].metadata[A0].leader == 3

    test()
