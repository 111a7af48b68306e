"""ListTransactions, 0 to 2: the transactional ids that this broker coordinates, by state and producer id (KIP-664).

- 1: those whose transaction has been open for longer than a time (KIP-994)
- 2: those that a regular expression matches as a whole (KIP-1152)
"""

from __future__ import annotations

from collections.abc import Sequence

from kafkad.api.context import Context, Request
from kafkad.api.patterns import Pattern, PatternError
from kafkad.errors import ErrorCode, KafkaError
from kafkad.security.authorizer import Operation, ResourceType
from kafkad.turns import Pieces
from kafkad.txn.transaction import State
from kafkad.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

_STATES = {state.label: state for state in State}
_NEVER_RECORDED = frozenset({"Dead", "PrepareEpochFence"})
"""States of Kafka's in which no id is found here."""
_AT_ONCE = 16


def handle(context: Context, request: Request, message: ListTransactionsRequest) -> Pieces[ListTransactionsResponse]:
    transactions = context.transactions()
    if transactions.coordination.reading:
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    pattern = _pattern(message.transactional_id_pattern)
    asked = message.state_filters
    states = {_STATES[name] for name in asked if name in _STATES}
    found: list[TransactionState] = []
    if states or not asked:
        listed = transactions.list(states, set(message.producer_id_filters), message.duration_filter)
        for number, known in enumerate(listed):
            if not number % _AT_ONCE:
                yield
            if known is None:
                continue
            if not request.allows(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, known.id):
                continue  # before the pattern is tried, which takes time that tells something of the id
            if pattern is not None and not (yield from pattern.matches_in_pieces(known.id)):
                continue
            found.append(
                TransactionState(
                    transactional_id=known.id,
                    producer_id=known.producer_id,
                    transaction_state=known.state.label,
                )
            )
    return ListTransactionsResponse(unknown_state_filters=_unknown(asked), transaction_states=found)


def _unknown(names: Sequence[str]) -> list[str]:
    return [name for name in names if name not in _STATES and name not in _NEVER_RECORDED]


def _pattern(text: str | None) -> Pattern | None:
    """Without a pattern, or with an empty one, every id will do."""
    if not text:
        return None
    try:
        return Pattern(text)
    except PatternError as error:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error
