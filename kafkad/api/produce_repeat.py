"""The quick way of Produce: the batch for one partition that a producer sends again and again.

Such requests are the same from the client id to the partition index. That part is looked up as bytes and says where
the batch goes; the response is prepared but for its correlation id and offsets. Whatever is not quite ordinary about
the batch is left to `api/produce`, with nothing done.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Final

from kafkad.api.prepared import NO_REPLY
from kafkad.log.validate import records_match_header
from kafkad.net.connection import Connection, DeferredReply
from kafkad.net.reply import Reply
from kafkad.replica.partition import Partition
from kafkad.wire.primitives import get_uvarint
from kafkad.wire.produce import FIRST_FLEXIBLE, ProduceFrame, Template

if TYPE_CHECKING:
    from kafkad.api.produce import ProduceApi
    from kafkad.api.transaction import Admission, Transaction

_START = Struct(">2xhi")
"""Api key, version, correlation id."""
_REPEATS_FROM: Final = _START.size
_I32 = Struct(">i")
_MOST_KNOWN = 256
LONGEST_KNOWN: Final = 512
"""Bytes of a request up to its partition index, which hold a client id and a topic: longer ones are not remembered."""
_FIRST_WITH_START_OFFSET: Final = 5
_ACKS_ALL, _ACKS_NONE = -1, 0


class Target:
    """The target of a repeated request, and the response to it."""

    __slots__ = ("acks", "fill", "partition", "request", "transaction")

    def __init__(
        self,
        partition: Partition,
        request: ProduceFrame,
        fill: Callable[[int, int, int], bytes],
        transaction: Admission | None,
    ) -> None:
        self.partition = partition
        self.request = request
        self.acks = request.acks
        self.fill = fill
        self.transaction = transaction


class RepeatedProduce:
    """Repeated produces of one connection, in one version. `_prefix`: repeating bytes of the last one remembered."""

    __slots__ = ("_api", "_connection", "_flexible", "_prefix", "_targets", "version")

    def __init__(self, api: ProduceApi, connection: Connection, version: int) -> None:
        self._api = api
        self._connection = connection
        self.version = version
        self._flexible = version >= FIRST_FLEXIBLE
        self._prefix = 0
        self._targets: dict[bytes, Target] = {}

    def remember(
        self, frame: memoryview, request: ProduceFrame, partition: Partition, transaction: Transaction | None
    ) -> bool:
        """`frame` was appended to `partition`, without anything else to say about it. Whether that is new."""
        self._prefix = request.repeats
        repeats = bytes(frame[_REPEATS_FROM : request.repeats])
        if repeats in self._targets:
            return False
        if len(self._targets) >= _MOST_KNOWN:
            self._targets.clear()
        template = Template(request, self.version)
        fill = template.fill if self.version >= _FIRST_WITH_START_OFFSET else template.fill_v2
        repeated = None if transaction is None else transaction.repeated(self._api.verifier)
        self._targets[repeats] = Target(partition, request, fill, repeated)
        return True

    def answer(self, view: memoryview, at: int, end: int) -> Reply | DeferredReply | None:
        """HOT. Appends the batch."""
        version, correlation_id = _START.unpack_from(view, at)
        batch_at = at + self._prefix
        target = self._targets.get(bytes(view[at + _REPEATS_FROM : batch_at]))
        if target is None or version != self.version:
            return None
        if self._flexible:
            length, batch_at = get_uvarint(view, batch_at)
            length -= 1
            end -= 3  # three empty sets of tagged fields
        else:
            length = _I32.unpack_from(view, batch_at)[0]
            batch_at += 4
        if batch_at + length != end:
            return None
        partition, acks = target.partition, target.acks
        base = self._api.append_ordinary(
            partition, acks, view, batch_at, end, version, records_match_header, target.transaction
        )
        if base < 0:
            return None
        if acks == _ACKS_NONE:
            return NO_REPLY
        reply = target.fill(correlation_id, base, partition.log.start_offset)
        if acks == _ACKS_ALL and not partition.commits_at_once:
            return self._api.when_committed(self._connection, reply, partition, target.request, version)
        return reply
