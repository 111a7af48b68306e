"""Rules of transactions that are broken on purpose, as in `mutations`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from kafkad.api.transaction import Transaction as RequestTransaction
from kafkad.group.offsets import Offsets
from kafkad.log.log import Log
from kafkad.names import GROUPS_TOPIC, TRANSACTIONS_TOPIC
from kafkad.replica.partition import Partition
from kafkad.txn import transaction
from kafkad.txn.machine import TransactionMachine
from kafkad.txn.markers import Ending
from kafkad.txn.transaction import Answer, InitProducer, Transaction
from tests.sim.history import BANK
from tests.sim.mutations import Mutation, both

TRANSACTIONS: dict[str, Mutation] = {}


def mutation(make: Callable[[], AbstractContextManager[Any]]) -> Mutation:
    TRANSACTIONS[make.__name__] = make
    return make


# -- the coordinator ---------------------------------------------------------------------------------------------------


@mutation
def a_new_producer_has_the_epoch_of_the_last_one() -> Any:
    def write(self: Any, producer_id: int, epoch: int, *more: Any) -> Any:
        return true_write(self, producer_id, max(epoch - 1, 0), *more)

    true_write = InitProducer._write
    return patch.object(InitProducer, "_write", write)


@mutation
def a_partition_gets_no_marker() -> Any:
    def init(self: Any, *what: Any) -> None:
        true_init(self, *what)
        self.waiting.discard(max(self.waiting, default=None))

    true_init = Ending.__init__
    return patch.object(Ending, "__init__", init)


@mutation
def transactions_stay_open_for_ever() -> Any:
    return patch.object(TransactionMachine, "_set_alarm", lambda *what: None)


@mutation
def a_fenced_producer_goes_on() -> Any:
    """Its epoch is behind that of the producer that has taken over."""

    def refusal(known: Transaction | None, producer_id: int, epoch: int) -> Answer | None:
        known_epoch = epoch if known is None or epoch > known.epoch else known.epoch
        return true_refusal(known, producer_id, known_epoch)

    true_refusal = transaction._refusal
    return patch.object(transaction, "_refusal", refusal)


@mutation
def the_next_coordinator_does_not_finish_what_was_prepared() -> Any:
    return patch.object(TransactionMachine, "_bring_out_loaded", lambda self, prepared: None)


# -- partitions --------------------------------------------------------------------------------------------------------


@mutation
def nobody_asks_whether_a_transaction_goes_on() -> Any:
    return both(
        patch.object(RequestTransaction, "claim", lambda *what: None),
        patch.object(RequestTransaction, "refusal", lambda *what: None),
    )


@mutation
def what_transactions_write_counts_before_it_is_committed() -> Any:
    """Records, offsets, states and markers: as soon as the leader has them."""

    def when_committed(self: Any, end: int, on_committed: Any) -> None:
        if self.tp.topic in (BANK, GROUPS_TOPIC, TRANSACTIONS_TOPIC) and self.is_leader and self.failure is None:
            on_committed(None)
        else:
            true_when_committed(self, end, on_committed)

    true_when_committed = Partition.when_committed
    return patch.object(Partition, "when_committed", when_committed)


@mutation
def aborted_transactions_are_not_in_the_index() -> Any:
    def note(self: Any, header: Any, base: int, marker: Any) -> None:
        self.producers.update(header, base, marker)

    return patch.object(Log, "_note_producer", note)


@mutation
def readers_of_committed_records_read_open_transactions() -> Any:
    def visible(self: Any, read_committed: bool) -> tuple[int, int, int]:
        return self.high_watermark, self.high_watermark, self.high_watermark

    return patch.object(Partition, "visible", visible)


@mutation
def offsets_count_though_their_transaction_is_aborted() -> Any:
    true_end = Offsets.end_transaction
    return patch.object(Offsets, "end_transaction", lambda self, pid, committed: true_end(self, pid, True))
