"""Reads partitions, all leaders at once. The next Fetch goes out as soon as an answer is in, before it is looked into:
while the broker is at work on the one, we are on the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition
from kctl.errors import Disconnected, KctlError, failure
from kctl.reach.offsets import EARLIEST, offsets_at
from kctl.reach.session import Session
from kctl.records.bounds import Span
from kctl.records.channels import Answer, Channels
from kctl.records.fetched import Fetched

if TYPE_CHECKING:
    from kafkad.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, PartitionData

_WAIT_MS = 500
_BACKOFF_SECONDS = 0.1
_PARTITION_BYTES = 4 << 20
_LARGEST_PARTITION_BYTES = 1 << 30
_FETCH_BYTES = 32 << 20
_PASSING = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
}
"""Errors that a partition answers while its leader moves."""


class _Partition:
    __slots__ = ("bytes", "end", "leader", "position", "told", "trouble", "trouble_since")

    def __init__(self, span: Span, partition_bytes: int) -> None:
        self.position, self.end = span
        self.leader: int | None = None
        self.bytes = partition_bytes
        self.trouble: KctlError | None = None
        self.trouble_since = 0.0
        self.told = False
        """True once its trouble, which has lasted for as long as the time-out, has been told."""


class Reader:
    """`poll` gives what has come. Partitions that could not be read for as long as the time-out are in `failed`.

    With `tell`, none is given up for what may pass as long as any broker answers: that it lasts, and that it is over,
    is told.
    """

    def __init__(
        self,
        session: Session,
        spans: Mapping[TopicPartition, Span],
        *,
        committed: bool = False,
        partition_bytes: int = _PARTITION_BYTES,
        tell: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.failed: dict[TopicPartition, KctlError] = {}
        self.skipped: list[str] = []
        self._session = session
        self._committed = committed
        self._partition_bytes = partition_bytes
        self._tell = tell
        self._clock = clock
        self._channels: Channels[dict[TopicPartition, int], FetchResponse] = Channels(session, clock)
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._look_again = 0.0
        self.add(spans)

    def keep(self, partitions: Collection[TopicPartition]) -> None:
        """Read no others than these from now on."""
        self._partitions = {where: state for where, state in self._partitions.items() if where in partitions}

    def add(self, spans: Mapping[TopicPartition, Span]) -> None:
        """Read these too."""
        for where, span in spans.items():
            if where not in self._partitions and span.start < span.end:
                self._partitions[where] = _Partition(span, self._partition_bytes)

    def go_on(self, where: TopicPartition, span: Span) -> None:
        """Read this partition from here on, wherever it was."""
        self._partitions.pop(where, None)
        self.add({where: span})

    def give_up(self, where: TopicPartition, error: KctlError) -> None:
        self.failed[where] = error
        self._partitions.pop(where, None)

    @property
    def done(self) -> bool:
        return not self._partitions

    @property
    def lost(self) -> dict[TopicPartition, KctlError]:
        """Partitions that have been in trouble for as long as the time-out, and are not given up."""
        return {where: state.trouble for where, state in self._partitions.items() if state.told and state.trouble}

    def close(self) -> None:
        self._channels.close()

    def poll(self, seconds: float) -> list[Fetched]:
        """The records that arrive within that time. Empty when none have, or when everything is read."""
        lost, failed = set(self.lost), set(self.failed)
        fetched = self._poll(seconds)
        if self._tell is not None:
            self._tell_changes(self._tell, lost, failed)
        return fetched

    def _tell_changes(
        self, tell: Callable[[str], None], lost: set[TopicPartition], failed: set[TopicPartition]
    ) -> None:
        """What has become of partitions that were `lost` and `failed` before."""
        if not self.done:  # else whoever reads ends, and says why
            for where in sorted(self.failed.keys() - failed):
                tell(f"{where} is not read any more: {self.failed[where].what}")
        reasons: dict[str, list[TopicPartition]] = {}
        for where in self.lost.keys() - lost:
            reasons.setdefault(self.lost[where].what, []).append(where)
        for reason, partitions in reasons.items():
            tell(f"{_listed(partitions)} cannot be read, and is tried again: {reason}")
        if back := lost - self.lost.keys() - self.failed.keys():
            tell(f"{_listed(back)} is read again")

    def _poll(self, seconds: float) -> list[Fetched]:
        self._find_leaders()
        for broker in {state.leader for state in self._partitions.values()}:
            if broker is not None and not self._channels.is_busy(broker):
                self._ask(broker)
        if not self._channels.busy:
            if self._partitions:
                time.sleep(min(seconds, _BACKOFF_SECONDS))
            return []
        fetched: list[Fetched] = []
        for answer in self._channels.wait(seconds):
            fetched += self._taken(answer)
            if any(state.leader == answer.broker for state in self._partitions.values()):
                self._ask(answer.broker)
        return fetched

    # --- asking

    def _find_leaders(self) -> None:
        now = self._clock()
        lost = [where for where, state in self._partitions.items() if state.leader is None]
        if not lost or now < self._look_again:
            return
        try:
            if self._look_again:  # a leader was lost: what the session knows of it is old
                self._session.metadata(sorted({where.topic for where in lost}))
            found = self._session.leaders(lost)
        except KctlError as error:
            for where in lost:
                self._in_trouble(where, error, nobody_answers=True)
            found = {}
        for where, leader in found.items():
            if isinstance(leader, KctlError):
                self._in_trouble(where, leader)
            else:
                self._partitions[where].leader = leader
        self._look_again = now + _BACKOFF_SECONDS

    def _ask(self, broker: int) -> None:
        asked = {where: state.position for where, state in self._partitions.items() if state.leader == broker}
        if asked:
            patience = self._session.settings.timeout + _WAIT_MS / 1000
            self._channels.send(broker, lambda _: self._request(asked), asked, patience)

    def _request(self, asked: Mapping[TopicPartition, int]) -> FetchRequest:
        from kafkad.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

        topics: dict[str, list[FetchPartition]] = {}
        for (topic, partition), position in asked.items():
            size = self._partitions[TopicPartition(topic, partition)].bytes
            wanted = FetchPartition(partition=partition, fetch_offset=position, partition_max_bytes=size)
            topics.setdefault(topic, []).append(wanted)
        return FetchRequest(
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=_FETCH_BYTES,
            isolation_level=int(self._committed),
            topics=[FetchTopic(topic=topic, partitions=partitions) for topic, partitions in topics.items()],
        )

    # --- taking

    def _taken(self, answer: Answer[dict[TopicPartition, int], FetchResponse]) -> list[Fetched]:
        asked = answer.tag
        if isinstance(answer.response, KctlError):
            if not isinstance(answer.response, Disconnected):
                raise answer.response
            for where in asked:
                self._in_trouble(where, answer.response)
            return []
        if answer.response.error_code:
            raise failure(answer.response.error_code, f"broker {answer.broker} refused the fetch")
        fetched = []
        nothing = not any(part.records for topic in answer.response.responses for part in topic.partitions)
        for topic in answer.response.responses:
            for part in topic.partitions:
                where = TopicPartition(topic.topic, part.partition_index)
                state = self._partitions.get(where)
                if state is None or asked.get(where) != state.position:
                    continue  # given up, or given back, meanwhile
                if part.error_code:
                    self._refused(where, state, part)
                elif one := self._progress(where, state, part, nothing):
                    fetched.append(one)
        return fetched

    def _progress(self, where: TopicPartition, state: _Partition, part: PartitionData, nothing: bool) -> Fetched | None:
        state.trouble, state.told = None, False
        try:
            fetched = Fetched(where, part, state.position, state.end, more=state.bytes < _FETCH_BYTES)
        except KctlError as error:
            self.give_up(where, error)
            return None
        if part.records and not fetched.size:
            state.bytes = min(state.bytes * 2, _LARGEST_PARTITION_BYTES)
        limit = part.last_stable_offset if self._committed and part.last_stable_offset >= 0 else part.high_watermark
        if nothing and limit >= state.end:  # compaction left nothing up to there
            fetched.next = state.end
        state.position = fetched.next
        if state.position >= state.end:
            del self._partitions[where]
        return fetched if fetched.next > fetched.start else None

    def _refused(self, where: TopicPartition, state: _Partition, part: PartitionData) -> None:
        error = failure(part.error_code, f"partition {where} cannot be read at offset {state.position}")
        if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(where, state, error)
        elif part.error_code in _PASSING:
            self._in_trouble(where, error)
        else:
            self.give_up(where, error)

    def _out_of_range(self, where: TopicPartition, state: _Partition, error: KctlError) -> None:
        """Retention or a truncation was faster: go on where the log starts now, and say so."""
        start = offsets_at(self._session, {where: EARLIEST})[where]
        if isinstance(start, KctlError) or start.offset <= state.position:
            self.give_up(where, error if not isinstance(start, KctlError) else start)
            return
        self.skipped.append(f"{where}: offsets {state.position} to {start.offset - 1} were deleted meanwhile")
        state.position = start.offset
        if state.position >= state.end:
            del self._partitions[where]

    def _in_trouble(self, where: TopicPartition, error: KctlError, *, nobody_answers: bool = False) -> None:
        """It may pass: look for its leader again, until the time-out is over, or for ever."""
        state = self._partitions.get(where)
        if state is None:
            return
        now = self._clock()
        state.leader = None
        if state.trouble is None:
            state.trouble_since = now
        state.trouble = error
        if now - state.trouble_since < self._session.settings.timeout:
            return
        if self._tell is None or nobody_answers or error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name:
            self.give_up(where, error)
        else:
            state.told = True


def _listed(partitions: Collection[TopicPartition], most: int = 5) -> str:
    names = ", ".join(map(str, sorted(partitions)[:most]))
    return names if len(partitions) <= most else f"{names} and {len(partitions) - most} more"
