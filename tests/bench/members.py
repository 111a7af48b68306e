"""Many members of one consumer group, each as a client library would be: a connection of its own, joining again when
a heartbeat or the assignment is answered so."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kafkad.errors import ErrorCode
from kafkad.wire.apis import response_class
from kafkad.wire.frames import RequestHeader, encode_request, read_response_header
from kafkad.wire.messages.api_versions import ApiVersionsRequest
from kafkad.wire.messages.heartbeat import HeartbeatRequest
from kafkad.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kafkad.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kafkad.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kafkad.wire.schema import read

_JOIN, _SYNC, _HEARTBEAT, _LEAVE, _VERSIONS = (11, 9), (14, 5), (12, 4), (13, 5), (18, 2)
_BEAT_S = 3.0
_RETRY_S = 0.05
_LONGEST_ANSWER = 1 << 22
_RETRIABLE = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
_JOIN_AGAIN = {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION}


class Members:
    def __init__(self, port: int, group: str, topic: str, count: int) -> None:
        """Of a topic with as many partitions."""
        self.name = group
        self.members = [Member(port, group, topic) for _ in range(count)]

    async def join(self) -> float:
        """Seconds until all are in one generation and know their assignment; they are connected before."""
        for member in self.members:
            await member.connect()
        return await self._until_stable(time.perf_counter())

    async def one_leaves(self) -> float:
        """Seconds from the leave on, if the next heartbeats of all others are due just then."""
        leaving = self.members.pop()
        begin = time.perf_counter()
        await leaving.leave()
        return await self._until_stable(begin)

    async def _until_stable(self, begin: float) -> float:
        before = self.members[0].generation
        stable = asyncio.Event()
        end = begin

        def settled() -> None:
            nonlocal end
            generation = self.members[0].generation
            if generation > before and all(m.settled and m.generation == generation for m in self.members):
                end = time.perf_counter()
                stable.set()

        async with asyncio.TaskGroup() as lives:
            for member in self.members:
                lives.create_task(member.live(stable, settled))
        return end - begin

    async def close(self) -> None:
        for member in self.members:
            member.close()


class Member:
    def __init__(self, port: int, group: str, topic: str) -> None:
        self.id = ""
        self.generation = -1
        self.settled = False
        self._port = port
        self._group = group
        self._topic = topic
        self._writer: asyncio.StreamWriter | None = None

    async def connect(self) -> None:
        """Until the broker has answered, as a client's library asks first: a connection for which it had no room to
        wait (50 have with Kafka) looks open, and nothing that is sent on it arrives for seconds."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, limit=_LONGEST_ANSWER)
        _check((await self._ask(_VERSIONS, ApiVersionsRequest())).error_code)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    async def live(self, end: asyncio.Event, on_settled: Callable[[], None]) -> None:
        """Join, and a heartbeat now and then, until `end`; `on_settled` after each assignment."""
        while not end.is_set():
            if self.settled:
                await self._beat()
            if not self.settled:
                await self._enter()
                on_settled()
            with suppress(TimeoutError):
                async with asyncio.timeout(_BEAT_S):
                    await end.wait()

    async def leave(self) -> None:
        answer = await self._ask(
            _LEAVE, LeaveGroupRequest(group_id=self._group, members=[MemberIdentity(member_id=self.id)])
        )
        _check(answer.error_code or answer.members[0].error_code)
        self.close()

    async def _beat(self) -> None:
        beat = HeartbeatRequest(group_id=self._group, generation_id=self.generation, member_id=self.id)
        code = (await self._ask(_HEARTBEAT, beat)).error_code
        self.settled = code not in _JOIN_AGAIN
        if self.settled:
            _check(code)

    async def _enter(self) -> None:
        subscription = struct.pack(">hih", 1, 1, len(self._topic)) + self._topic.encode() + struct.pack(">ii", -1, 0)
        while not self.settled:
            joined = await self._ask(
                _JOIN,
                JoinGroupRequest(
                    group_id=self._group,
                    session_timeout_ms=45_000,
                    rebalance_timeout_ms=300_000,
                    member_id=self.id,
                    protocol_type="consumer",
                    protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription)],
                ),
            )
            if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.id = joined.member_id
            elif joined.error_code in _RETRIABLE:
                await asyncio.sleep(_RETRY_S)
            else:
                _check(joined.error_code)
                await self._take_assignment(joined)

    async def _take_assignment(self, joined: JoinGroupResponse) -> None:
        self.id, self.generation = joined.member_id, joined.generation_id
        answer = await self._ask(
            _SYNC,
            SyncGroupRequest(
                group_id=self._group,
                generation_id=self.generation,
                member_id=self.id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[
                    SyncGroupRequestAssignment(member_id=member.member_id, assignment=self._assignment(index))
                    for index, member in enumerate(joined.members)
                ],
            ),
        )
        self.settled = answer.error_code not in _JOIN_AGAIN
        if self.settled:
            _check(answer.error_code)

    def _assignment(self, partition: int) -> bytes:
        name = self._topic.encode()
        return struct.pack(">hih", 0, 1, len(name)) + name + struct.pack(">iii", 1, partition, -1)

    async def _ask(self, api: tuple[int, int], message: Any) -> Any:
        assert self._writer is not None
        self._writer.write(encode_request(RequestHeader(*api, 1, "member"), message))
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        answer = await self._reader.readexactly(size)
        _, at = read_response_header(*api, answer)
        return read(response_class(api[0]), api[1], answer, at)[0]


def _check(code: int) -> None:
    if code:
        raise RuntimeError(f"a member was told {ErrorCode(code).name}")
