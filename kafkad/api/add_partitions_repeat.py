"""The quick way of AddPartitionsToTxn: what an old client asks at the beginning of each of its transactions.

It keeps its producer id and epoch from one transaction to the next, so that such requests differ in nothing but the
correlation id. Where the coordinator can add the partitions on the spot, the answer is prepared. All else is left to
`api/add_partitions_to_txn`, with nothing done.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from kafkad.api.context import Context, Request
from kafkad.txn.transaction import AddPartitions
from kafkad.wire.frames import encode_request, encode_response
from kafkad.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

_START = Struct(">2xhi")
"""Api key, version, correlation id."""
_REPEATS_FROM: Final = _START.size
_CORRELATION_AT: Final = 4
_I32 = Struct(">i")
_MOST_KNOWN: Final = 16
_LONGEST_KNOWN: Final = 1024


class _Prepared(NamedTuple):
    """What a repeated request adds, and its answer but for the correlation id."""

    transactional_id: str
    asked: AddPartitions
    client: str
    answer: bytearray


class RepeatedAdding:
    """The prepared answers of one connection, in one version."""

    __slots__ = ("_context", "_known", "version")

    def __init__(self, context: Context, version: int) -> None:
        self._context = context
        self.version = version
        self._known: dict[bytes, _Prepared] = {}

    def answer(self, view: memoryview, at: int, end: int) -> bytes | None:
        """HOT."""
        version, correlation_id = _START.unpack_from(view, at)
        known = self._known.get(bytes(view[at + _REPEATS_FROM : end]))
        if known is None or version != self.version:
            return None
        name, asked, client, answer = known
        if not self._context.transactions().adds_at_once(name, asked, client):
            return None
        _I32.pack_into(answer, _CORRELATION_AT, correlation_id)
        return bytes(answer)

    def remember(
        self,
        request: Request,
        message: AddPartitionsToTxnRequest,
        asked: AddPartitions,
        response: AddPartitionsToTxnResponse,
    ) -> bool:
        """Keeps the answer to a request by which everything was added. Only bytes that are what we would write can be
        relied on. True if it is a new one."""
        header, frame = request.header, request.frame
        repeats = bytes(frame[_REPEATS_FROM:])
        if len(frame) > _LONGEST_KNOWN or repeats in self._known or encode_request(header, message)[4:] != frame:
            return False
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        answer = bytearray(encode_response(header.api_key, header.api_version, 0, response))
        self._known[repeats] = _Prepared(message.v3_and_below_transactional_id, asked, request.client_text, answer)
        return True
