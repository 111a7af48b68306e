"""Rules of transactions that are broken on purpose: the model has to find each."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.errors import FlakyFailure
from hypothesis.stateful import run_state_machine_as_test

from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition
from kafkad.txn import machine, transaction
from kafkad.txn.machine import TransactionMachine
from kafkad.txn.markers import Ending, MarkerQueues
from kafkad.txn.transaction import AddPartitions, Answer, Cause, EndAndBump, InitProducer, State, Transaction
from tests.txn.test_model import CheckedWorld

Mutation = Callable[[], AbstractContextManager[Any]]
MUTATIONS: dict[str, Mutation] = {}


def mutation(make: Mutation) -> Mutation:
    MUTATIONS[make.__name__] = make
    return make


# -- decisions


@mutation
def a_new_producer_leaves_open_what_is_open() -> Any:
    def decide(self: InitProducer, known: Transaction | None, moment: Any) -> Any:
        if known is not None and known.state is State.ONGOING:
            return self._write(known.producer_id, known.epoch + 1, known, moment)
        return true_decide(self, known, moment)

    true_decide = InitProducer.decide
    return patch.object(InitProducer, "decide", decide)


@mutation
def an_epoch_behind_will_do() -> Any:
    def refusal(known: Transaction | None, producer_id: int, epoch: int) -> Answer | None:
        behind = known is not None and producer_id == known.producer_id and epoch == known.epoch - 1
        return None if behind else true_refusal(known, producer_id, epoch)

    true_refusal = transaction._refusal
    return patch.object(transaction, "_refusal", refusal)


@mutation
def an_end_is_repeated_whatever_has_begun_since() -> Any:
    def is_repeated(self: EndAndBump, known: Transaction) -> bool:
        return self.producer_id == known.producer_id and self.epoch == known.epoch - 1

    return patch.object(EndAndBump, "_is_repeated", is_repeated)


@mutation
def a_repeated_end_is_refused() -> Any:
    return patch.object(EndAndBump, "_is_repeated", lambda self, known: False)


@mutation
def the_last_epoch_is_given_to_clients() -> Any:
    return patch.object(transaction, "LAST_CLIENT_EPOCH", transaction.LAST_EPOCH)


@mutation
def the_next_producer_id_is_lost() -> Any:
    def completed(prepared: Transaction, prepared_ms: int) -> Transaction:
        return true_completed(prepared._replace(next_producer_id=-1), prepared_ms)

    true_completed = transaction.completed
    return patch.object(machine, "completed", completed)


@mutation
def what_is_open_expires() -> Any:
    return patch.object(machine, "is_forgettable", lambda *what: True)


@mutation
def an_open_transaction_loses_partitions() -> Any:
    def decide(self: AddPartitions, known: Transaction | None, moment: Any) -> Any:
        found = true_decide(self, known, moment)
        if isinstance(found, transaction.Write):
            return found._replace(record=found.record._replace(partitions=frozenset(self.partitions)))
        return found

    true_decide = AddPartitions.decide
    return patch.object(AddPartitions, "decide", decide)


# -- what is done about them


@mutation
def transactions_stay_open_for_ever() -> Any:
    return patch.object(TransactionMachine, "_set_alarm", lambda *what: None)


@mutation
def what_was_prepared_is_not_gone_on_with() -> Any:
    return patch.object(TransactionMachine, "_bring_out_loaded", lambda *what: None)


@mutation
def an_id_is_written_for_by_two_at_once() -> Any:
    def consider(self: TransactionMachine, name: str, request: Any) -> Any:
        self._busy.discard(name)
        return true_consider(self, name, request)

    true_consider = TransactionMachine._consider
    return patch.object(TransactionMachine, "_consider", consider)


@mutation
def an_end_is_answered_before_it_is_recorded() -> Any:
    def decide(self: TransactionMachine, name: str, request: Any) -> Any:
        found = true_decide(self, name, request)
        if isinstance(found, transaction.Write) and found.cause is Cause.COMMITTED:
            self._answer(request, found.answer)
        return found

    true_decide = TransactionMachine._decide
    return patch.object(TransactionMachine, "_decide", decide)


@mutation
def markers_have_the_epoch_of_the_records() -> Any:
    def init(self: Ending, prepared: Transaction, *more: Any) -> None:
        true_init(self, prepared, *more)
        if prepared.version:
            self.marker = self.marker._replace(producer_epoch=prepared.epoch - 1)

    true_init = Ending.__init__
    return patch.object(Ending, "__init__", init)


@mutation
def a_partition_gets_no_marker() -> Any:
    def init(self: Ending, *what: Any) -> None:
        true_init(self, *what)
        self.waiting.discard(max(self.waiting, default=TopicPartition("", 0)))

    true_init = Ending.__init__
    return patch.object(Ending, "__init__", init)


@mutation
def a_marker_that_was_refused_counts() -> Any:
    def settle(self: MarkerQueues, ending: Ending, tp: TopicPartition, tries: int, code: ErrorCode) -> None:
        true_settle(self, ending, tp, tries, ErrorCode.NONE)

    true_settle = MarkerQueues.settle
    return patch.object(MarkerQueues, "settle", settle)


@mutation
def a_deleted_partition_is_waited_for() -> Any:
    def route(self: MarkerQueues, ending: Ending, partitions: Any, tries: int) -> None:
        self._metadata.is_here.clear()
        true_route(self, ending, partitions, tries)

    true_route = MarkerQueues._route
    return patch.object(MarkerQueues, "_route", route)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", MUTATIONS)
def test_it_is_found(name: str) -> None:
    tried = settings(
        max_examples=20_000,  # one rule, that of the next producer id, is not always found by 2,000
        stateful_step_count=40,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    with MUTATIONS[name](), pytest.raises(Exception) as found, suppress(FlakyFailure):
        run_state_machine_as_test(CheckedWorld, settings=tried)
    print(f"{name}: {found.value!r}")
