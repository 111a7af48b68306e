"""Questions to the coordinator of a transaction at another broker."""

from __future__ import annotations

import asyncio
from typing import Any

from kafkad.api.verifier import Claim, Verdict, Verifier
from kafkad.errors import ErrorCode
from kafkad.model import BrokerInfo, Endpoint
from kafkad.names import TopicPartition
from kafkad.net.client import LinkError
from kafkad.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from tests.fakes import FakeClock

T0 = TopicPartition("t", 0)
OTHER = BrokerInfo(
    id=2, endpoints=(Endpoint(listener="PLAINTEXT", host="b2", port=9092, protocol="PLAINTEXT"),), rack=None
)


class Unanswered:
    """A link to a broker that does not answer, until it is closed."""

    def __init__(self) -> None:
        self._closed = asyncio.Event()

    async def call(self, request: Any, *, timeout_ms: int) -> Any:
        await self._closed.wait()
        raise LinkError("closed")

    def close(self) -> None:
        self._closed.set()


class Answers:
    """A link to a broker that gives each partition this code."""

    def __init__(self, code: int) -> None:
        self._code = code

    async def call(self, request: AddPartitionsToTxnRequest, *, timeout_ms: int) -> AddPartitionsToTxnResponse:
        result = AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=self._code)
        topic = AddPartitionsToTxnTopicResult(name="t", results_by_partition=[result])
        transaction = AddPartitionsToTxnResult(transactional_id="a", topic_results=[topic])
        return AddPartitionsToTxnResponse(results_by_transaction=[transaction])

    def close(self) -> None:
        pass


class Elsewhere:
    """Transactions that another broker coordinates."""

    def find(self, key: str) -> BrokerInfo:
        return OTHER

    def add_partitions(self, *what: Any, **more: Any) -> None:
        raise AssertionError

    lets_in = add_partitions


def test_a_code_that_is_not_known_here_is_an_unknown_error() -> None:
    async def ask() -> list[Verdict]:
        verifier = Verifier(Elsewhere, 1, lambda broker: Answers(999), FakeClock(), lambda: 60_000)  # type: ignore[arg-type]
        told: list[Verdict] = []
        verifier.ask(Claim("a", 7, 0, [T0], adds=True, knows_abortable=True, asker=""), told.append)
        for _ in range(3):
            await asyncio.sleep(0)
        return told

    assert asyncio.run(ask()) == [{T0: ErrorCode.UNKNOWN_SERVER_ERROR}]


def test_nobody_waits_for_a_coordinator_that_is_gone() -> None:
    async def ask() -> list[Verdict]:
        verifier = Verifier(Elsewhere, 1, lambda broker: Unanswered(), FakeClock(), lambda: 60_000)  # type: ignore[arg-type]
        told: list[Verdict] = []
        verifier.ask(Claim("a", 7, 0, [T0], adds=True, knows_abortable=True, asker=""), told.append)
        await asyncio.sleep(0)
        verifier.brokers_changed({2: OTHER})
        await asyncio.sleep(0)
        assert not told
        verifier.brokers_changed({})
        for _ in range(3):
            await asyncio.sleep(0)
        return told

    assert asyncio.run(ask()) == [{T0: ErrorCode.NOT_ENOUGH_REPLICAS}]
