"""The controller as every broker sees it: asked in this process where it is this broker, else over the network.

All of these requests may be made again when it is not known what became of them: a topic that is there already, an ISR
that is as wanted and a second block of producer ids do no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from kafkad.controller.controller import Controller
from kafkad.controller.isr import IsrResult
from kafkad.controller.topics import Admit, NewTopic, TopicResult, admit_all
from kafkad.errors import ErrorCode, KafkaError
from kafkad.meta.znodes import ProducerIdBlock
from kafkad.model import BrokerInfo, WantedIsr
from kafkad.names import TopicPartition


class ControllerLink(Protocol):
    """Every method raises KafkaError: what the controller answers, or NOT_CONTROLLER when none can be asked."""

    async def create_topics(
        self, topics: Sequence[NewTopic], *, timeout_ms: int, admit: Admit = admit_all
    ) -> list[TopicResult]:
        """Results in the order of `topics`. This broker may hear of a topic a moment later. Only a controller in this
        process asks `admit`: another one creates them for this broker."""

    async def allocate_producer_ids(self) -> ProducerIdBlock:
        """A block of ids that no other broker ever gets."""

    async def alter_isr(self, wanted: Mapping[TopicPartition, WantedIsr]) -> dict[TopicPartition, IsrResult]:
        """The state of each partition as it is now, or why it was not changed."""

    async def controlled_shutdown(self) -> list[TopicPartition]:
        """The partitions that this broker still leads because no other replica can."""


class ClosableLink(ControllerLink, Protocol):
    def close(self) -> None: ...


class LocalController:
    """The controller in this process."""

    def __init__(self, controller: Controller, broker: int, epoch: Callable[[], int]) -> None:
        self._controller = controller
        self._broker = broker
        self._epoch = epoch

    async def create_topics(
        self, topics: Sequence[NewTopic], *, timeout_ms: int, admit: Admit = admit_all
    ) -> list[TopicResult]:
        return await self._controller.create_topics(topics, timeout_ms=timeout_ms, admit=admit)

    async def allocate_producer_ids(self) -> ProducerIdBlock:
        return await self._controller.allocate_producer_ids(self._broker, self._epoch())

    async def alter_isr(self, wanted: Mapping[TopicPartition, WantedIsr]) -> dict[TopicPartition, IsrResult]:
        return await self._controller.alter_isr(self._broker, self._epoch(), wanted)

    async def controlled_shutdown(self) -> list[TopicPartition]:
        return await self._controller.controlled_shutdown(self._broker, self._epoch())


class CurrentController:
    """A link to the current controller. The connection to the last one that was another broker is kept."""

    def __init__(
        self,
        controller: Controller,
        local: LocalController,
        brokers: Callable[[int], BrokerInfo | None],
        remote: Callable[[BrokerInfo], ClosableLink] | None,
    ) -> None:
        """`remote` is None where this broker is the only one there can be."""
        self._controller = controller
        self._local = local
        self._brokers = brokers
        self._connect = remote
        self._remote: ClosableLink | None = None
        self._remote_broker: BrokerInfo | None = None

    async def create_topics(
        self, topics: Sequence[NewTopic], *, timeout_ms: int, admit: Admit = admit_all
    ) -> list[TopicResult]:
        return await self._now().create_topics(topics, timeout_ms=timeout_ms, admit=admit)

    async def allocate_producer_ids(self) -> ProducerIdBlock:
        return await self._now().allocate_producer_ids()

    async def alter_isr(self, wanted: Mapping[TopicPartition, WantedIsr]) -> dict[TopicPartition, IsrResult]:
        return await self._now().alter_isr(wanted)

    async def controlled_shutdown(self) -> list[TopicPartition]:
        return await self._now().controlled_shutdown()

    def close(self) -> None:
        if self._remote is not None:
            self._remote.close()

    def _now(self) -> ControllerLink:
        if self._controller.active or self._connect is None:
            return self._local
        active = self._controller.controller_id
        broker = None if active is None else self._brokers(active)
        if broker is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "No controller is known to this broker")
        if self._remote is None or broker != self._remote_broker:
            self.close()
            self._remote, self._remote_broker = self._connect(broker), broker
        return self._remote
