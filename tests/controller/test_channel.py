"""What a broker is asked at once, and how often until it has answered."""

from __future__ import annotations

import asyncio
import functools
import gc
import logging
import sys
import weakref
from collections.abc import Awaitable, Callable

from kafkad.controller.channel import BrokerQueue, Channel, Request, Response
from kafkad.controller.topics import NewTopic
from kafkad.errors import ErrorCode, KafkaError
from kafkad.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from kafkad.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from kafkad.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from kafkad.wire.primitives import EncodeError

from .cluster import Cluster, with_brokers


@with_brokers(1, 2)
async def test_a_broker_hears_of_many_new_replicas_in_parts_but_of_its_first_ones_at_once(cluster: Cluster) -> None:
    for name in ("first", "second"):
        many = NewTopic(name=name, partitions=2_500, replication_factor=2)
        [result] = await cluster.controller.create_topics([many], timeout_ms=5_000)
        assert result.error is None
        await cluster.settle()
    for broker in (1, 2):
        sizes = [
            sum(len(topic.partition_states) for topic in request.topic_states)
            for request in cluster[broker].requests
            if isinstance(request, LeaderAndIsrRequest)
        ]
        assert sizes == [2_500, 1_000, 1_000, 500]
        assert len(cluster[broker].replicas) == len(cluster[broker].metadata) == 5_000


class Broker(Channel):
    """Has these outcomes for the requests that are sent to it."""

    def __init__(self, *outcomes: Response | Exception) -> None:
        self.outcomes = list(outcomes)
        self.sent: list[Request] = []
        self.pauses: list[float] = []

    async def send(self, request: Request) -> Response:
        self.sent.append(request)
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def sleep(self, ms: float) -> None:
        self.pauses.append(ms)

    async def close(self) -> None:
        pass


def test_a_queue_that_is_closed_leaves_nothing_to_the_collection_of_garbage() -> None:
    """Neither itself nor the request in flight, which may name all partitions."""

    class Silent(Broker):
        async def send(self, request: Request) -> Response:
            await asyncio.Event().wait()
            raise AssertionError

    async def closed(request: Request) -> weakref.ref[BrokerQueue]:
        broker = Silent()
        queue = BrokerQueue(2, broker, broker.sleep, lambda: 0)
        queue.put(request)
        await asyncio.sleep(0)
        await queue.close()
        return weakref.ref(queue)

    request = UpdateMetadataRequest()
    mine = sys.getrefcount(request)
    gc.disable()
    try:
        assert asyncio.run(closed(request))() is None
        assert sys.getrefcount(request) == mine
    finally:
        gc.enable()


STOP, UPDATE = StopReplicaRequest(), UpdateMetadataRequest()
STOPPED, UPDATED = StopReplicaResponse(), UpdateMetadataResponse()


def with_queue(*outcomes: Response | Exception) -> Callable[[Callable[[Broker, BrokerQueue], Awaitable[None]]], object]:
    """A test in a loop of its own, with a queue to a broker that has these outcomes."""

    def decorate(test: Callable[[Broker, BrokerQueue], Awaitable[None]]) -> Callable[[], None]:
        @functools.wraps(test)
        def run() -> None:
            async def whole() -> None:
                broker = Broker(*outcomes)
                queue = BrokerQueue(2, broker, broker.sleep, lambda: 0)
                await asyncio.wait_for(test(broker, queue), 30)
                await queue.close()

            asyncio.run(whole())

        del run.__wrapped__  # pytest would take the test's parameters for fixtures
        return run

    return decorate


def no_thread() -> RuntimeError:
    return RuntimeError("can't start new thread")


@with_queue(
    OSError(),
    KafkaError(ErrorCode.NOT_CONTROLLER),
    *(no_thread() for _ in range(9)),
    MemoryError(),
    OSError(),
    no_thread(),
    STOPPED,
)
async def test_a_request_is_sent_until_it_is_answered_whatever_went_wrong(broker: Broker, queue: BrokerQueue) -> None:
    heard: list[Response] = []
    await queue.put(STOP, heard.append)
    assert heard == [STOPPED]
    assert broker.sent == [STOP] * 15
    while_bugs_last = [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000, 10_000]
    assert broker.pauses == [100, 100, *while_bugs_last, 10_000, 100]


@with_queue(EncodeError("StopReplicaRequest v4: no str"), UPDATED)
async def test_a_request_that_cannot_be_expressed_holds_up_no_other(broker: Broker, queue: BrokerQueue) -> None:
    heard: list[Response] = []
    await asyncio.gather(queue.put(STOP, heard.append), queue.put(UPDATE, heard.append))
    assert heard == [UPDATED]
    assert broker.sent == [STOP, UPDATE]


@with_queue(STOPPED, UPDATED)
async def test_an_error_in_hearing_an_answer_does_not_send_the_request_again(
    broker: Broker, queue: BrokerQueue
) -> None:
    def hear(response: Response) -> None:
        raise RuntimeError

    await asyncio.gather(queue.put(STOP, hear), queue.put(UPDATE))
    assert broker.sent == [STOP, UPDATE]


REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@with_queue(
    UpdateMetadataResponse(error_code=REFUSED),
    StopReplicaResponse(error_code=REFUSED),
    LeaderAndIsrResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH),
    LeaderAndIsrResponse(error_code=REFUSED),
)
async def test_a_broker_to_which_this_one_is_nobody_is_told_of_once(broker: Broker, queue: BrokerQueue) -> None:
    told = Told()
    logging.getLogger("kafkad.controller.channel").addHandler(told)
    try:
        await queue.put(UPDATE)
        await queue.put(STOP)
        [first] = told.texts
        await queue.put(LeaderAndIsrRequest())
        assert told.texts == [first]
        await queue.put(LeaderAndIsrRequest())
    finally:
        logging.getLogger("kafkad.controller.channel").removeHandler(told)
    assert told.texts == [first, first]
    assert first.startswith("broker 2 refuses all that this one tells it as the controller")


class Told(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())
