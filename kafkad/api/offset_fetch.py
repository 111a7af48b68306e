"""OffsetFetch, 0 to 10: what groups have committed. Version 0 reads the metadata store; 8 and up take many groups.

Clients decide by the answer which records to process again, and commit that elsewhere. So it is never told by a
coordinator that another one has followed: what was read is only told when this broker led until then.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import cache, partial
from itertools import compress
from operator import not_
from typing import TYPE_CHECKING

from kafkad.api.context import Context, Request
from kafkad.errors import ErrorCode, KafkaError
from kafkad.group.committing import Fetched
from kafkad.group.offsets import Position
from kafkad.names import NO_TOPIC_ID
from kafkad.security.authorizer import Operation, ResourceType
from kafkad.together import together
from kafkad.turns import Pieces, Turns, at_once, each, in_turns
from kafkad.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from kafkad.group.machine import GroupMachine
    from kafkad.shard import Shard

_ERROR_OF_ALL = 2
"""From this version on there is a place for the error of a whole group."""
_MANY_GROUPS = 8
_BY_ID = 10
_PIECE = 64


def handle(
    context: Context, request: Request, message: OffsetFetchRequest
) -> Pieces[OffsetFetchResponse | Coroutine[None, None, OffsetFetchResponse]]:
    version = request.version
    if version >= _MANY_GROUPS:
        groups = []
        homes: Homes = {}
        asked = yield from _merged(message.groups)
        for group, topics in asked.items():
            one = yield from _group(context, request, group, topics, message.require_stable, version >= _BY_ID, homes)
            groups.append(one)
            yield
        response = OffsetFetchResponse(groups=groups)
        doubtful = [shard for shard in homes if not context.leadership.is_sure(shard)]  # when all have been read
        return _if_led(context, response, homes, doubtful) if doubtful else response
    positions = None
    if message.topics is not None:
        named: list[Position] = []
        for topic in message.topics:
            yield
            named += yield from _all_of(topic.name, topic.partition_indexes)
        positions = list(dict.fromkeys(named))  # whatever is named twice is answered once
    yield
    may = _may_see(request, positions)
    if version == 0 and request.allowed(Operation.DESCRIBE, ResourceType.GROUP, message.group_id):
        return _from_store(context, request, message.group_id, positions or (), may)
    try:
        home = _home(context, request, message.group_id)
        found = yield from _fetched(context, request, message.group_id, positions, message.require_stable, may)
    except KafkaError as error:
        return (yield from _refused(version, positions or (), error.code))
    answer = yield from _of_one_group(found)
    if context.leadership.is_sure(home):
        return answer
    return _one_if_led(context, version, positions or (), answer, home)


Homes = dict["Shard[GroupMachine]", list[OffsetFetchResponseGroup]]
"""Where groups were read, and what is to be told of each."""


def _home(context: Context, request: Request, group: str) -> Shard[GroupMachine]:
    request.check(Operation.DESCRIBE, ResourceType.GROUP, group)
    return context.group_coordination.shard(group)


async def _if_led(
    context: Context, response: OffsetFetchResponse, homes: Homes, doubtful: Sequence[Shard[GroupMachine]]
) -> OffsetFetchResponse:
    """Any client looks for the coordinator on NOT_COORDINATOR; older ones give up on other codes here."""
    led = await together(map(context.leadership.confirm, doubtful))
    for shard, is_led in zip(doubtful, led, strict=True):
        if not is_led:
            await in_turns(each(_disown, homes[shard]))
    return response


def _disown(group: OffsetFetchResponseGroup) -> None:
    group.topics, group.error_code = [], ErrorCode.NOT_COORDINATOR


async def _one_if_led(
    context: Context,
    version: int,
    positions: Sequence[Position],
    answer: OffsetFetchResponse,
    home: Shard[GroupMachine],
) -> OffsetFetchResponse:
    if await context.leadership.confirm(home):
        return answer
    return await in_turns(_refused(version, positions, ErrorCode.NOT_COORDINATOR))


def _refused(version: int, positions: Sequence[Position], code: ErrorCode) -> Pieces[OffsetFetchResponse]:
    """A single group."""
    if version >= _ERROR_OF_ALL:
        return OffsetFetchResponse(error_code=code)
    return (yield from _of_one_group(Fetched(position, error=code) for position in positions))


Topics = list[OffsetFetchRequestTopics] | None
"""None is all that the group committed to."""


def _merged(groups: Iterable[OffsetFetchRequestGroup]) -> Pieces[dict[str, Topics]]:
    """The topics asked for by group. One that is named twice is answered once, for all that it is named with: its
    offsets and their metadata may be many times what the request is."""
    merged: dict[str, Topics] = {}
    for group in groups:
        before = merged.setdefault(group.group_id, [])
        if group.topics is None:
            merged[group.group_id] = None
        elif before is not None:
            before += group.topics
        yield
    return merged


Sees = Callable[[str], bool]
"""Whether the sender may see a topic."""


def _may_see(request: Request, positions: Sequence[Position] | None) -> Sees:
    """Asked for all, what it may not see is left out without a word."""
    asked = request.allows if positions is None else request.allowed
    return cache(partial(asked, Operation.DESCRIBE, ResourceType.TOPIC))


def _fetched(
    context: Context,
    request: Request,
    group: str,
    positions: Sequence[Position] | None,
    require_stable: bool,
    may: Sees,
) -> Pieces[list[Fetched]]:
    if positions is None:
        found = yield from context.offsets.fetch(group, None, require_stable)
        if not request.restricted:
            return found
        sees = yield from each(may, (one.position[0] for one in found))
        return list(compress(found, sees))
    if not request.restricted:
        return (yield from context.offsets.fetch(group, positions, require_stable))
    sees = yield from each(may, (topic for topic, _ in positions))
    found = yield from context.offsets.fetch(group, list(compress(positions, sees)), require_stable)
    hidden = compress(positions, map(not_, sees))
    return found + (yield from each(_hidden, hidden))


def _hidden(position: Position) -> Fetched:
    return Fetched(position, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _of_one_group(found: Iterable[Fetched]) -> Pieces[OffsetFetchResponse]:
    topics: dict[str, OffsetFetchResponseTopic] = {}
    for (name, index), offset, epoch, metadata, error in found:
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = OffsetFetchResponseTopic(name=name)
        topic.partitions.append(
            OffsetFetchResponsePartition(
                partition_index=index,
                committed_offset=offset,
                committed_leader_epoch=epoch,
                metadata=metadata,
                error_code=error,
            )
        )
        yield
    return OffsetFetchResponse(topics=list(topics.values()))


async def _from_store(
    context: Context, request: Request, group: str, positions: Sequence[Position], may: Sees
) -> OffsetFetchResponse:
    """Offsets in the store (version 0), which has an error for partitions without a commit, or that do not exist.

    They are read one after the other, and others are served in between: the rights are asked for again before each."""
    known = context.replicas.metadata.topics
    turns = Turns()
    found = []
    for position in positions:
        await turns.give_way()
        topic, partition = position
        if not may(topic) or not request.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic):
            found.append(_hidden(position))
        elif not request.allows(Operation.DESCRIBE, ResourceType.GROUP, group):
            found.append(Fetched(position, error=ErrorCode.GROUP_AUTHORIZATION_FAILED))
        elif topic in known and partition in known[topic].partitions:
            found.append(await context.stored_offsets.fetch(group, position))
        else:
            found.append(Fetched(position, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    return at_once(_of_one_group(found))


def _group(
    context: Context, request: Request, group: str, topics: Topics, require_stable: bool, by_id: bool, homes: Homes
) -> Pieces[OffsetFetchResponseGroup]:
    response = OffsetFetchResponseGroup(group_id=group)
    positions, unknown = yield from _positions(context, topics, by_id)
    try:
        homes.setdefault(_home(context, request, group), []).append(response)
        may = _may_see(request, positions)
        found = yield from _fetched(context, request, group, positions, require_stable, may)
    except KafkaError as error:
        response.error_code = error.code
        return response
    answers = yield from _topics(context, found, by_id)
    response.topics = answers + unknown
    return response


def _all_of(topic: str, indexes: Sequence[int]) -> Pieces[list[Position]]:
    positions = []
    for start in range(0, len(indexes), _PIECE):
        positions += [(topic, index) for index in indexes[start : start + _PIECE]]
        yield
    return positions


def _positions(
    context: Context, topics: Topics, by_id: bool
) -> Pieces[tuple[list[Position] | None, list[OffsetFetchResponseTopics]]]:
    """The partitions to look up, None for all, and the answers for ids that no topic has."""
    if topics is None:
        return None, []
    positions: list[Position] = []
    unknown: list[OffsetFetchResponseTopics] = []
    for topic in topics:
        name = context.replicas.metadata.name_of(topic.topic_id) if by_id else topic.name
        if name is not None:
            positions += yield from _all_of(name, topic.partition_indexes)
        else:
            partitions = yield from each(_of_unknown_topic, topic.partition_indexes)
            unknown.append(OffsetFetchResponseTopics(topic_id=topic.topic_id, partitions=partitions))
        yield
    return positions, unknown


def _of_unknown_topic(index: int) -> OffsetFetchResponsePartitions:
    return _partition(Fetched(("", index), error=ErrorCode.UNKNOWN_TOPIC_ID))


def _topics(context: Context, found: Iterable[Fetched], by_id: bool) -> Pieces[list[OffsetFetchResponseTopics]]:
    """Asked by id, a topic that has none, or is gone, cannot be told of."""
    known = context.replicas.metadata.topics
    topics: dict[str, OffsetFetchResponseTopics] = {}
    for one in found:
        name = one.position[0]
        topic = topics.get(name)
        if topic is None:
            topic_id = known[name].id if by_id and name in known else NO_TOPIC_ID
            topic = topics[name] = OffsetFetchResponseTopics(name=name, topic_id=topic_id)
        topic.partitions.append(_partition(one))
        yield
    return [topic for topic in topics.values() if not by_id or topic.topic_id != NO_TOPIC_ID]


def _partition(found: Fetched) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=found.position[1],
        committed_offset=found.offset,
        committed_leader_epoch=found.leader_epoch,
        metadata=found.metadata,
        error_code=found.error,
    )
