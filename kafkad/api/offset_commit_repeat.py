"""The quick way of OffsetCommit: the commit of one partition that a consumer sends again and again.

Such requests differ in the correlation id and in what comes last: offset, leader epoch and metadata. What stands
between them is looked up as bytes and says who commits to which partition; the answer is prepared. Whatever is not
quite ordinary is left to `api/offset_commit` with nothing done: refusals, a group that is not here, a write that has
to be waited for.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from kafkad.api.context import Context
from kafkad.group.committing import DEFAULT_RETENTION, Committer, StandingCommit
from kafkad.wire.frames import RequestHeader, encode_request, encode_response
from kafkad.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse

_START = Struct(">2xhi")
"""Api key, version, correlation id."""
_REPEATS_FROM = _START.size
_MOST_KNOWN = 128
_LONGEST_KNOWN = 1024
"""Bytes of a request that is remembered: it names a client, a group, a member, an instance and a topic."""
_FIRST, _FIRST_WITH_THROTTLE, _FIRST_WITH_EPOCH, _FIRST_FLEXIBLE = 2, 3, 6, 8
"""Version 1 has a time in every offset."""

_PLAIN = Struct(">qh")
_WITH_EPOCH = Struct(">qih")
_FLEXIBLE = Struct(">qiB")
_NO_TAGS = b"\0\0\0"
"""Empty tagged fields of the partition, of the topic, of the request."""
_NO_METADATA = Struct(">qi4s")
_WITHOUT_METADATA = b"\1" + _NO_TAGS, b"\0" + _NO_TAGS
"""An empty string, or none."""
_LONGEST = 126
"""Bytes of metadata whose length takes one byte; longer ones go the general way."""

_NOT_THROTTLED = bytes(4)
"""The throttle time of an answer; of version 2, which has none, nothing is packed."""

Said = tuple[int, int, str]
"""Offset, leader epoch, metadata."""


class _Known(NamedTuple):
    """A commit known by the bytes it begins with, and the answer around its correlation id and throttle time."""

    commit: StandingCommit
    answer: Struct
    before: bytes
    after: bytes


class RepeatedCommits:
    """Repeated commits of one connection, in one version. `_tail`: bytes after the repeating ones, the last time."""

    __slots__ = ("_context", "_known", "_tail", "version")

    def __init__(self, context: Context, version: int) -> None:
        self._context = context
        self.version = version
        self._known: dict[bytes, _Known] = {}
        self._tail = 0

    def answer(self, view: memoryview, at: int, end: int) -> bytes | None:
        """HOT. Commits the offset."""
        version, correlation_id = _START.unpack_from(view, at)
        tail_at = end - self._tail
        known = self._known.get(bytes(view[at + _REPEATS_FROM : tail_at]))
        if known is None or version != self.version:
            return None
        commit, answer, before, after = known
        said = _read(view, tail_at, end, version)
        if said is None or not commit.again(*said):
            return None
        return answer.pack(before, correlation_id, _NOT_THROTTLED, after)

    def remember(
        self, frame: memoryview, header: RequestHeader, message: OffsetCommitRequest, response: OffsetCommitResponse
    ) -> str:
        """`frame` was answered so, all of it committed. Only bytes that are what we would write can be relied on.
        Returns the topic that a new answer rests on, or nothing."""
        [topic] = message.topics
        [asked] = topic.partitions
        metadata = (asked.committed_metadata or "").encode()
        if len(metadata) > _LONGEST or len(frame) > _LONGEST_KNOWN:
            return ""
        self._tail = _tail_size(self.version, len(metadata))
        prefix = bytes(frame[_REPEATS_FROM : -self._tail])
        known = self._known.get(prefix)
        if known is not None and known.commit.stands:
            return ""
        name = topic.name or self._context.replicas.metadata.name_of(topic.topic_id) or ""
        who = Committer(
            message.group_id, message.member_id, message.group_instance_id, message.generation_id_or_member_epoch
        )
        commit = self._context.offsets.standing(who, name, asked.partition_index)
        if not commit.stands or encode_request(header, message)[4:] != frame:
            return ""
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        answer = encode_response(header.api_key, self.version, 0, response)
        throttle_at = 8 + (self.version >= _FIRST_FLEXIBLE)
        throttle_size = len(_NOT_THROTTLED) if self.version >= _FIRST_WITH_THROTTLE else 0
        after = answer[throttle_at + throttle_size :]
        layout = Struct(f">4si{throttle_at - 8}x{throttle_size}s{len(after)}s")
        self._known[prefix] = _Known(commit, layout, answer[:4], after)
        return name


def may_repeat(version: int, message: OffsetCommitRequest) -> bool:
    """True if this commits one offset, in a way that the quick way knows."""
    return (
        version >= _FIRST
        and len(message.topics) == 1
        and len(message.topics[0].partitions) == 1
        and message.retention_time_ms == DEFAULT_RETENTION
    )


def _tail_size(version: int, metadata: int) -> int:
    if version >= _FIRST_FLEXIBLE:
        return _FLEXIBLE.size + metadata + len(_NO_TAGS)
    return (_WITH_EPOCH if version >= _FIRST_WITH_EPOCH else _PLAIN).size + metadata


def _read(view: memoryview, at: int, end: int, version: int) -> Said | None:
    """The offset, epoch and metadata that a request ends with; None when they do not fill view[at:end] exactly."""
    epoch = -1
    if version >= _FIRST_FLEXIBLE:
        if end - at == _NO_METADATA.size:
            offset, epoch, rest = _NO_METADATA.unpack_from(view, at)
            return (offset, epoch, "") if rest in _WITHOUT_METADATA else None
        offset, epoch, size = _FLEXIBLE.unpack_from(view, at)
        at += _FLEXIBLE.size
        size -= 1
        end -= len(_NO_TAGS)
        if size > _LONGEST or view[end : end + len(_NO_TAGS)] != _NO_TAGS:
            return None
    elif version >= _FIRST_WITH_EPOCH:
        offset, epoch, size = _WITH_EPOCH.unpack_from(view, at)
        at += _WITH_EPOCH.size
    else:
        offset, size = _PLAIN.unpack_from(view, at)
        at += _PLAIN.size
    if at + max(size, 0) != end:
        return None
    try:
        return offset, epoch, str(view[at:end], "utf-8") if size > 0 else ""
    except UnicodeDecodeError:
        return None
