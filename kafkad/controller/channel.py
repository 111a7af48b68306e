"""The controller's requests to brokers: one queue and one request in flight for each broker, itself included."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from kafkad.errors import ErrorCode, KafkaError
from kafkad.model import BrokerInfo
from kafkad.timers import Pauses
from kafkad.wire.messages.api_versions import ApiVersionsRequest
from kafkad.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from kafkad.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from kafkad.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from kafkad.wire.primitives import EncodeError

if TYPE_CHECKING:
    from kafkad.net.client import Link

log = logging.getLogger(__name__)

Request = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest
Response = LeaderAndIsrResponse | UpdateMetadataResponse | StopReplicaResponse
OnResponse = Callable[[Response], None]

RETRY_MS = 100
"""The pause before the next attempt. After errors that are bugs, or a want of threads or memory, it grows from here."""


class Channel(Protocol):
    """A way to one broker."""

    async def send(self, request: Request) -> Response:
        """Raises OSError or KafkaError when there is no answer, EncodeError when the request cannot be expressed; with
        any but that it may have been carried out or not."""

    async def greet(self, timeout_ms: float) -> None:
        """Returns when the broker answers what needs no work. OSError when it does not, in that time."""

    async def close(self) -> None: ...


Connect = Callable[[BrokerInfo], Channel]
Sleep = Callable[[float], Awaitable[None]]
"""For so many milliseconds."""


class Replicas(Protocol):
    """The broker's handler of the controller's requests; `replica.manager` of the same process is one."""

    async def leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse: ...

    async def update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse: ...

    async def stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse: ...


class LocalChannel(Channel):
    """The channel to the broker in this process: no bytes, the same objects."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    async def send(self, request: Request) -> Response:
        if isinstance(request, LeaderAndIsrRequest):
            return await self._replicas.leader_and_isr(request)
        if isinstance(request, UpdateMetadataRequest):
            return await self._replicas.update_metadata(request)
        return await self._replicas.stop_replica(request)

    async def greet(self, timeout_ms: float) -> None:
        pass

    async def close(self) -> None:
        pass


class RemoteChannel(Channel):
    """The channel to a broker in another process."""

    def __init__(self, link: Link, timeout_ms: int) -> None:
        self._link = link
        self._timeout_ms = timeout_ms

    async def send(self, request: Request) -> Response:
        response: Response = await self._link.call(request, timeout_ms=self._timeout_ms)
        return response

    async def greet(self, timeout_ms: float) -> None:
        await self._link.call(ApiVersionsRequest(), timeout_ms=round(timeout_ms))

    async def close(self) -> None:
        self._link.close()


class BrokerQueue:
    """Requests to one broker in their order; each is sent again until it is answered, or the broker is gone.

    Only one that no version can express is given up: it would be the same each time, and hold up all behind it.
    """

    def __init__(self, broker: int, channel: Channel, sleep: Sleep, now_ms: Callable[[], float]) -> None:
        self._broker = broker
        self._channel = channel
        self._sleep = sleep
        self._now_ms = now_ms
        self._since_ms = now_ms()
        """When the request in flight became the first in the queue, or the last one was answered."""
        self.has_answered = False
        self._heard_of_replicas = False
        """It has been sent a LeaderAndIsr."""
        self._is_refused = False
        """The broker does not let this one act for the cluster, by what it answered last."""
        self._queue: deque[tuple[Request, OnResponse | None, asyncio.Future[None]]] = deque()
        self._wake = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def put(self, request: Request, on_response: OnResponse | None = None) -> asyncio.Future[None]:
        """The future is done when the broker has answered, or the request is given up, and cancelled when the queue is
        closed before that."""
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self._queue:
            self._since_ms = self._now_ms()
        self._queue.append((request, on_response, answered))
        self._wake.set()
        return answered

    @property
    def waiting(self) -> int:
        """Requests without an answer, the one in flight included."""
        return len(self._queue)

    @property
    def unanswered_ms(self) -> float:
        """How long the request in flight has waited for its answer."""
        return self._now_ms() - self._since_ms if self._queue else 0

    def replicas_at_once(self, wanted: int) -> int:
        """How many replicas a LeaderAndIsr may name: `wanted`, but the first one has all. With it Kafka begins to write
        high watermarks into a file, and has to know of each by then."""
        first, self._heard_of_replicas = not self._heard_of_replicas, True
        return sys.maxsize if first else wanted

    @property
    def idle_ms(self) -> float:
        """How long ago the last answer came, with nothing asked since."""
        return 0 if self._queue else self._now_ms() - self._since_ms

    async def close(self) -> None:
        """Drops what was not sent."""
        self._task.cancel()
        await asyncio.wait([self._task])
        del self._task  # which keeps its last moments: this queue, and the request in flight
        for _, _, answered in self._queue:
            answered.cancel()
        self._queue.clear()
        await self._channel.close()

    async def _run(self) -> None:
        while True:
            while not self._queue:
                self._wake.clear()
                await self._wake.wait()
            request, on_response, answered = self._queue[0]
            try:
                response = await self._until_answered(request)
                self.has_answered = True
                self._note_rights(response)
                if on_response is not None:
                    on_response(response)
            except EncodeError:
                log.exception("internal error: broker %d is not sent %s", self._broker, type(request).__name__)
            except Exception:
                log.exception(
                    "internal error in taking what broker %d answered %s", self._broker, type(request).__name__
                )
            self._queue.popleft()
            self._since_ms = self._now_ms()
            if not answered.done():
                answered.set_result(None)

    def _note_rights(self, response: Response) -> None:
        """To send again what is refused would not help. It is told once, until the broker answers otherwise."""
        was_refused, self._is_refused = self._is_refused, response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        if self._is_refused and not was_refused:
            log.warning(
                "broker %d refuses all that this one tells it as the controller, and learns nothing of the cluster: "
                "whoever this broker is to it has no right to ClusterAction; its audit log names that user, whom its "
                "super.users should have",
                self._broker,
            )

    async def _until_answered(self, request: Request) -> Response:
        """Raises EncodeError only."""
        pauses = Pauses(RETRY_MS)
        while True:
            try:
                return await self._channel.send(request)
            except EncodeError:
                raise
            except Exception as e:
                is_bug = not isinstance(e, (OSError, KafkaError))
                pause_ms, is_news = pauses.after(e, is_ours=is_bug)
                if is_news:
                    name, bug = type(request).__name__, e if is_bug else None
                    text = "broker %d did not answer %s; resending until it does: %s"
                    log.warning(text, self._broker, name, str(e) or repr(e), exc_info=bug)
                await self._sleep(pause_ms)
