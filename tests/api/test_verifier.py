"""Questions to the coordinator of a transaction at another broker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from kafkad.api.verifier import Claim, Verdict, Verifier
from kafkad.errors import ErrorCode
from kafkad.model import BrokerInfo, Endpoint
from kafkad.names import TopicPartition
from kafkad.net.client import LinkError
from kafkad.timers import Timers
from kafkad.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from tests.fakes import FakeClock, turns
from tests.txn.life import scenario

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
    """A link to a broker that gives each partition the code that is set; `asked` are its requests. While `holding` it
    answers with `let_go`."""

    def __init__(self, code: int = 0, *, holding: bool = False) -> None:
        self.code = code
        self.holding = holding
        self.asked: list[AddPartitionsToTxnRequest] = []
        self._let_go = asyncio.Event()

    async def call(self, request: AddPartitionsToTxnRequest, *, timeout_ms: int) -> AddPartitionsToTxnResponse:
        self.asked.append(request)
        if self.holding:
            self._let_go.clear()
            await self._let_go.wait()
        return AddPartitionsToTxnResponse(
            results_by_transaction=[self._result(transaction) for transaction in request.transactions]
        )

    def _result(self, transaction: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnResult:
        return AddPartitionsToTxnResult(
            transactional_id=transaction.transactional_id,
            topic_results=[
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=self.code)
                        for index in topic.partitions
                    ],
                )
                for topic in transaction.topics
            ],
        )

    def let_go(self) -> None:
        self._let_go.set()

    def ids(self) -> list[list[str]]:
        return [[one.transactional_id for one in request.transactions] for request in self.asked]

    def close(self) -> None:
        pass


class Elsewhere:
    """Transactions that another broker coordinates."""

    def find(self, key: str) -> BrokerInfo:
        return OTHER

    def add_partitions(self, *what: Any, **more: Any) -> None:
        raise AssertionError

    lets_in = add_partitions


class Asking:
    """A verifier that reaches that broker over a link, and what it has told."""

    def __init__(self, link: Any) -> None:
        self.clock, self.timers = FakeClock(), Timers()
        self.told: list[tuple[str, Verdict]] = []
        self.verifier = Verifier(
            *(lambda: Elsewhere(), 1, lambda broker: link, self.clock, self.timers),  # type: ignore[arg-type]
            timeout_ms=lambda: 60_000,
        )

    def ask(self, name: str = "a", partitions: Sequence[TopicPartition] = (T0,), *, adds: bool = True) -> None:
        claim = Claim(name, 7, 0, partitions, adds=adds, knows_abortable=True, client="")
        self.verifier.ask(claim, lambda verdict: self.told.append((name, verdict)))

    async def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        self.timers.expire(self.clock.monotonic_ms())
        await turns()


@scenario
async def test_a_code_that_is_not_known_here_is_an_unknown_error() -> None:
    asking = Asking(Answers(999))
    asking.ask()
    await turns()
    assert asking.told == [("a", {T0: ErrorCode.UNKNOWN_SERVER_ERROR})]


@scenario
async def test_nobody_waits_for_a_coordinator_that_is_gone() -> None:
    asking = Asking(Unanswered())
    asking.ask("a")
    await turns()
    asking.ask("b")
    asking.verifier.brokers_changed({2: OTHER})
    await turns()
    assert not asking.told
    asking.verifier.brokers_changed({})
    await turns()
    assert asking.told == [(name, {T0: ErrorCode.NOT_ENOUGH_REPLICAS}) for name in "ab"]


@scenario
async def test_what_is_to_be_asked_while_a_broker_answers_is_asked_together() -> None:
    link = Answers(holding=True)
    asking = Asking(link)
    for name in ("a", "b", "c", "b", "a"):
        asking.ask(name)
    await turns()
    assert link.ids() == [["a", "b", "c"]], "the answer says no more of a claim than its id"
    asking.ask("c")
    await turns()
    link.let_go()
    await turns()
    assert [name for name, _ in asking.told] == ["a", "b", "c"]
    assert link.ids()[1:] == [["b", "a", "c"]]
    link.let_go()
    await turns()
    assert asking.told[3:] == [(name, {T0: ErrorCode.NONE}) for name in ("b", "a", "c")]


@scenario
async def test_a_request_has_some_hundred_partitions_or_one_claim() -> None:
    link = Answers()
    asking = Asking(link)
    many = [TopicPartition("t", index) for index in range(300)]
    asking.ask("a", many * 2)
    for name in "bcd":
        asking.ask(name, many[:250])
    await turns()
    assert link.ids() == [["a"], ["b", "c"], ["d"]]
    assert len(asking.told) == 4


@pytest.mark.parametrize("adds", [True, False])
def test_a_coordinator_that_waits_for_markers_is_asked_again_for_a_while(adds: bool) -> None:
    async def ask() -> None:
        link = Answers(ErrorCode.CONCURRENT_TRANSACTIONS)
        asking = Asking(link)
        asking.ask(adds=adds)
        await turns()
        for number in range(1, 6):
            assert len(link.asked) == number
            assert not asking.told
            await asking.advance(20)
        told = ErrorCode.CONCURRENT_TRANSACTIONS if adds else ErrorCode.NOT_ENOUGH_REPLICAS
        assert asking.told == [("a", {T0: told})]
        asking.ask(adds=adds)
        await turns()
        link.code = 0
        await asking.advance(20)
        assert asking.told[1:] == [("a", {T0: ErrorCode.NONE})]

    asyncio.run(ask())


@scenario
async def test_an_internal_error_is_answered_and_holds_nobody_up() -> None:
    class Broken(Answers):
        async def call(self, request: AddPartitionsToTxnRequest, *, timeout_ms: int) -> AddPartitionsToTxnResponse:
            if self.code:
                raise ValueError
            return await super().call(request, timeout_ms=timeout_ms)

    link = Broken(1)
    asking = Asking(link)
    asking.ask()
    await turns()
    link.code = 0
    asking.ask()
    await turns()
    assert asking.told == [("a", {T0: ErrorCode.UNKNOWN_SERVER_ERROR}), ("a", {T0: ErrorCode.NONE})]
    await asking.verifier.stop()
