"""Requests about transactions: coordinators on their state, partition leaders on their producers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition
from kctl.command.choosing import Choice, all_unknown
from kctl.command.chosen import chosen_brokers, chosen_topics
from kctl.errors import Exit, KctlError, failure
from kctl.reach.session import TRANSACTION
from kctl.texts.scopes import not_there, parse_scope

if TYPE_CHECKING:
    from kafkad.wire.messages.describe_producers import DescribeProducersResponse, ProducerState
    from kafkad.wire.messages.describe_transactions import DescribeTransactionsResponse
    from kctl.reach.session import Session

DECIDED = ("PrepareCommit", "PrepareAbort")
OPEN = ("Ongoing", *DECIDED)
"""States in which a transaction still has to write something to its partitions."""


class Listed(NamedTuple):
    transactional_id: str
    state: str
    producer_id: int
    coordinator: int


class Transaction(NamedTuple):
    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int
    """-1 where none is open."""
    partitions: tuple[TopicPartition, ...]
    """Once its outcome is decided: those that still lack the marker."""

    @property
    def is_open(self) -> bool:
        """One that has ended keeps its beginning."""
        return self.state in OPEN and self.start_ms >= 0

    @property
    def is_decided(self) -> bool:
        """It will be committed or aborted for certain, and waits for its markers."""
        return self.state in DECIDED


class Producer(NamedTuple):
    where: TopicPartition
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    start_offset: int
    """The first offset of its open transaction, or -1."""


def listed(
    session: Session, states: Sequence[str] = (), producer_ids: Sequence[int] = (), older_ms: int = -1
) -> tuple[list[Listed], list[KctlError]]:
    """The transactions of all coordinators; and why some may be missing: the errors of brokers that did not answer, and
    partitions that nobody coordinates."""
    from kafkad.wire.messages.list_transactions import ListTransactionsRequest

    request = ListTransactionsRequest(
        state_filters=list(states), producer_id_filters=list(producer_ids), duration_filter=older_ms
    )
    found: list[Listed] = []
    errors = session.unlisted(TRANSACTION)
    for broker, response in session.call_each(dict.fromkeys(session.cluster.brokers, request)).items():
        if isinstance(response, KctlError):
            errors.append(response)
        elif response.error_code:
            errors.append(failure(response.error_code, f"transactions of broker {broker}"))
        elif response.unknown_state_filters:
            unknown = ", ".join(response.unknown_state_filters)
            raise KctlError(f"unknown transaction state {unknown}", exit_code=Exit.USAGE)
        else:
            found.extend(
                Listed(state.transactional_id, state.transaction_state, state.producer_id, broker)
                for state in response.transaction_states
            )
    return sorted(found), errors


def described(session: Session, ids: Iterable[str]) -> dict[str, Transaction | KctlError]:
    """Each of these transactional ids, as its coordinator has it."""
    from kafkad.wire.messages.describe_transactions import DescribeTransactionsRequest

    def read(response: DescribeTransactionsResponse) -> Iterator[tuple[str, int, Transaction]]:
        for state in response.transaction_states:
            partitions = tuple(TopicPartition(t.topic, p) for t in state.topics for p in t.partitions)
            yield (
                state.transactional_id,
                state.error_code,
                Transaction(
                    state.transactional_id,
                    state.transaction_state,
                    state.producer_id,
                    state.producer_epoch,
                    state.transaction_timeout_ms,
                    state.transaction_start_time_ms,
                    tuple(sorted(partitions)),
                ),
            )

    def build(asked: list[str]) -> DescribeTransactionsRequest:
        return DescribeTransactionsRequest(transactional_ids=asked)

    return session.ask_coordinators(ids, build, read, TRANSACTION)


def described_or_unknown(session: Session, ids: Iterable[str]) -> tuple[dict[str, Transaction], list[KctlError]]:
    """These transactional ids, and what is wrong with the others: of one that does not exist, which are called nearly
    so."""
    told = described(session, ids)
    found = {name: one for name, one in told.items() if not isinstance(one, KctlError)}
    errors = {name: one for name, one in told.items() if isinstance(one, KctlError)}
    missing = [name for name, one in errors.items() if one.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND.name]
    errors |= all_unknown("transactional id", missing, lambda: [one.transactional_id for one in listed(session)[0]])
    return found, list(errors.values())


def changed_since(what: str) -> KctlError:
    hints = ("look again, and decide anew",)
    return KctlError(f"{what} has ended since it was shown; nothing was done", exit_code=Exit.REFUSED, hints=hints)


def producers_of(
    session: Session, partitions: Iterable[TopicPartition], broker: int | None = None
) -> dict[TopicPartition, list[Producer] | KctlError]:
    """The producers of each partition, as its leader remembers them, or its replica on `broker`."""
    from kafkad.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest

    def build(asked: list[TopicPartition]) -> DescribeProducersRequest:
        topics: dict[str, list[int]] = {}
        for topic, partition in asked:
            topics.setdefault(topic, []).append(partition)
        return DescribeProducersRequest(
            topics=[TopicRequest(name=name, partition_indexes=which) for name, which in topics.items()]
        )

    def read(response: DescribeProducersResponse) -> Iterator[tuple[TopicPartition, int, list[Producer]]]:
        for topic in response.topics:
            for partition in topic.partitions:
                where = TopicPartition(topic.name, partition.partition_index)
                yield where, partition.error_code, [_producer(where, state) for state in partition.active_producers]

    return session.ask_leaders(partitions, build, read, broker)


def _producer(where: TopicPartition, state: ProducerState) -> Producer:
    return Producer(
        where,
        state.producer_id,
        state.producer_epoch,
        state.last_sequence,
        state.last_timestamp,
        state.coordinator_epoch,
        state.current_txn_start_offset,
    )


def partitions_named(
    session: Session, words: Sequence[str], broker: int | None = None
) -> tuple[list[TopicPartition], list[KctlError]]:
    """`orders` is all its partitions, `orders:0,2` are two; no word at all is every partition there is. With a broker
    only those that have a replica there."""
    if broker is not None:
        chosen_brokers(session, (broker,))
    wanted = {scope.topic: scope.partitions for scope in map(parse_scope, words)}
    topics, errors = chosen_topics(session, Choice("topic", list(wanted), (), (), takes_patterns=False))
    found: list[TopicPartition] = []
    for name, topic in topics.items():
        there = {partition.partition_index: partition.replica_nodes for partition in topic.partitions}
        asked = wanted.get(name) or sorted(there)
        found.extend(
            TopicPartition(name, partition)
            for partition in asked
            if partition in there and (broker is None or broker in there[partition])
        )
        errors += not_there(name, asked, there)
    return found, errors
