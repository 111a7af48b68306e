"""The audit trail: one INFO line of the logger `kafkad.audit` for each change that a client made, and its principal.

What was changed is read off the request and its answer, so that a handler need not know of this; it tells of what these
do not. Every API in `routes` is either in CHANGES, or in TOLD_BY_HANDLERS, or in the list of tests/api/test_audit.py of
those that change nothing an operator looks after.

Of what clients do without looking after a cluster there are ten lines of a kind a second for each principal, and one
that counts the rest. Of all else no line is left out.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final, NamedTuple

from kafkad.api.config_resources import ResourceType
from kafkad.api.context import Request
from kafkad.api.quota_entities import parts_named
from kafkad.config.config import find_setting
from kafkad.controller.configs import Alteration
from kafkad.errors import ErrorCode
from kafkad.loggers import Later, LinesPerSecond
from kafkad.names import some
from kafkad.security.authorizer import Operation, PatternType, PermissionType
from kafkad.security.authorizer import ResourceType as Secured
from kafkad.security.scram import NUMBERED
from kafkad.turns import Turns

log = logging.getLogger("kafkad.audit")

_LINES_AT_ONCE = 5
_NAMED = 20
_SHOWN_OF_REST = 150
_REMEMBERED = 10_000
DONE = (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)
"""Changes that are answered as timed out still go on."""

Lines = Iterable[str]
Change = Callable[[Any, Any], Lines]
"""Tells from a request and its answer what was changed, a line for each thing."""
Say = Callable[..., None]
"""Writes a line, as a logger does."""


class LostTopic(NamedTuple):
    """A topic that was deleted, as it was."""

    name: str
    partitions: int
    replication_factor: int
    settings: Mapping[str, str]


class Audit:
    """Writes the audit trail. The dispatcher calls it with every answer that is not of Produce or Fetch."""

    def __init__(self, monotonic_ms: Callable[[], float], later: Later) -> None:
        self._limited = LinesPerSecond(monotonic_ms, later, _say_rest)
        self._committers: dict[int, None] = {}
        """Hashes: names of groups may be long."""
        self._pending: deque[tuple[Iterator[str], str, Say]] = deque()
        self._writing: asyncio.Task[None] | None = None

    def note(self, request: Request, message: Any, response: Any) -> None:
        """HOT for commits of offsets."""
        changes = CHANGES.get(request.header.api_key)
        if changes is None:
            return
        try:
            lines = changes(message, response)
            if lines and not self._is_daily_work(changes, request, message):
                say: Say = _say_at_any_level if _may_change_levels(changes, message) else log.info
                self._write(self._admitted(changes, request, iter(lines)), request.client_text, say)
        except Exception:  # the change is made, and is to be answered
            _failed(request.client_text)

    def created_on_demand(self, request: Request, topics: Iterable[str]) -> None:
        lines = (
            f"topic {_shown(name)} created, as it was asked for and auto.create.topics.enable is on" for name in topics
        )
        self._write(lines, request.client_text)

    def topics_deleted(self, request: Request, topics: Iterable[LostTopic]) -> None:
        self._write(map(_topic_deleted, topics), request.client_text)

    def _is_daily_work(self, changes: Change, request: Request, message: Any) -> bool:
        if changes is _offsets_set:
            return self._has_committed(request, message.group_id)
        return changes is _members_removed and _leaves_by_itself(request, message)

    def _has_committed(self, request: Request, group: str) -> bool:
        """A consumer that is no member commits all the time: its first commit on a connection stands for all."""
        committer = hash((request.connection.address, group))
        known = committer in self._committers
        self._committers[committer] = None
        if len(self._committers) > _REMEMBERED:
            del self._committers[next(iter(self._committers))]
        return known

    def _admitted(self, changes: Change, request: Request, lines: Iterator[str]) -> Iterator[str]:
        """All lines of the request, or none where its sender has had enough of what anybody may do."""
        if changes not in _BY_ANYBODY:
            return lines
        first = next(lines, None)
        if first is None:
            return iter(())
        about = f"{first[:_SHOWN_OF_REST]}; by {request.client_text}"
        is_admitted = self._limited.admits(str(request.connection.peer.principal), changes.__name__, about)
        return chain((first,), lines) if is_admitted else iter(())

    def _write(self, lines: Iterator[str], client: str, say: Say = log.info) -> None:
        if not self._pending:
            for line in islice(lines, _LINES_AT_ONCE):
                say("%s; by %s", line, client)
            rest = next(lines, None)
            if rest is None:
                return
            lines = chain((rest,), lines)
        self._pending.append((lines, client, say))
        if self._writing is None:
            self._writing = asyncio.ensure_future(self._write_pending())

    @property
    def idle(self) -> bool:
        """True if everything has been written."""
        return not self._pending

    async def _write_pending(self) -> None:
        turns = Turns()
        try:
            while self._pending:
                lines, client, say = self._pending[0]
                try:
                    for line in lines:
                        say("%s; by %s", line, client)
                        await turns.give_way()
                except Exception:
                    _failed(client)
                self._pending.popleft()
        finally:
            self._writing = None


def _failed(client: str) -> None:
    """In an exception handler."""
    log.exception("internal error in the audit trail of what was changed by %s", client)


def _may_change_levels(changes: Change, message: Any) -> bool:
    if changes is not _settings_altered and changes is not _settings_replaced:
        return False
    return any(each.resource_type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) for each in message.resources)


def _say_rest(lines: Sequence[str], number: int) -> None:
    log.info("%d more changes like the last ones within a second, among them: %s", number, " | ".join(lines))


def _say_at_any_level(text: str, *args: object) -> None:
    """The level may be another already, by the very change that this tells of."""
    log.handle(log.makeRecord(log.name, logging.INFO, "", 0, text, args, None))


def note_change(line: str, by: str) -> None:
    """A change that no client asked for."""
    log.info("%s; by %s", line, by)


# -- what each API changes -------------------------------------------------------------------------------------------


def _topics_created(message: Any, response: Any) -> Lines:
    if message.validate_only:
        return
    settings = {topic.name: topic.configs for topic in message.topics}
    for topic in response.topics:
        if topic.error_code in DONE:
            size = _size(topic.num_partitions, topic.replication_factor) if topic.num_partitions > 0 else ""
            with_settings = "".join(f", {_setting(c.name, c.value)}" for c in settings.get(topic.name, ()))
            yield f"topic {topic.name} created{size}{with_settings}"


def _topic_deleted(topic: LostTopic) -> str:
    settings = [_setting(name, value) for name, value in topic.settings.items()]
    with_settings = f", {some(settings, most=_NAMED)}" if settings else ""
    return f"topic {topic.name} deleted{_size(topic.partitions, topic.replication_factor)}{with_settings}"


def _size(partitions: int, replication_factor: int) -> str:
    return f" with partitions={partitions}, replication.factor={replication_factor}"


def _records_deleted(message: Any, response: Any) -> Lines:
    offsets = {
        (topic.name, asked.partition_index): asked.offset for topic in message.topics for asked in topic.partitions
    }
    for topic in response.topics:
        done = [one for one in topic.partitions if one.error_code in DONE]
        cut = [f"{one.partition_index} before {_cut_at(one, offsets[topic.name, one.partition_index])}" for one in done]
        if cut:
            yield f"records of topic {topic.name} deleted, of partition {some(cut, most=_NAMED)}"


def _cut_at(done: Any, asked: int) -> object:
    """The low watermark of an answer that came too early is the one of before."""
    if not done.error_code:
        return done.low_watermark
    return asked if asked >= 0 else "its end"


def _partitions_added(message: Any, response: Any) -> Lines:
    if message.validate_only:
        return ()
    counts = {topic.name: topic.count for topic in message.topics}
    return (f"topic {t.name} grown to {counts[t.name]} partitions" for t in response.results if t.error_code in DONE)


def _settings_altered(message: Any, response: Any) -> Lines:
    return _of_resources(message, response, "changed", _alteration)


def _settings_replaced(message: Any, response: Any) -> Lines:
    return _of_resources(message, response, "replaced", lambda config: _setting(config.name, config.value))


def _of_resources(message: Any, response: Any, verb: str, text: Callable[[Any], str]) -> Lines:
    if message.validate_only:
        return
    refused = {(r.resource_type, r.resource_name) for r in response.responses if r.error_code}
    for resource in message.resources:
        if (resource.resource_type, resource.resource_name) not in refused:
            changes = some([text(config) for config in resource.configs], most=_NAMED) or "to nothing of its own"
            yield f"settings of {_resource(resource.resource_type, resource.resource_name)} {verb}: {changes}"


def _replicas_moved(message: Any, response: Any) -> Lines:
    paths = {(t.name, index): each.path for each in message.dirs for t in each.topics for index in t.partitions}
    begun: dict[tuple[str, str], list[str]] = {}
    for topic in response.results:
        for partition in topic.partitions:
            if not partition.error_code:
                path = paths[topic.topic_name, partition.partition_index]
                begun.setdefault((path, topic.topic_name), []).append(str(partition.partition_index))
    for (path, name), partitions in begun.items():
        yield f"move to log directory {_shown(path)} begun for topic {name}: {some(partitions, most=_NAMED)}"


def _groups_deleted(message: Any, response: Any) -> Lines:
    return (f"group {_shown(r.group_id)} deleted, with its offsets" for r in response.results if not r.error_code)


def _leaders_elected(message: Any, response: Any) -> Lines:
    kind = "unclean" if message.election_type else "preferred"
    for topic in response.replica_election_results:
        elected = [str(p.partition_id) for p in topic.partition_result if not p.error_code]
        if elected:
            yield f"{kind} leaders elected for topic {topic.topic}: {some(elected, most=_NAMED)}"


def _reassignments_asked(message: Any, response: Any) -> Lines:
    refused = {(t.name, p.partition_index) for t in response.responses for p in t.partitions if p.error_code}
    if response.error_code:
        return
    targets = {(topic.name, p.partition_index): p.replicas for topic in message.topics for p in topic.partitions}
    asked: dict[str, list[str]] = {}
    for (name, index), replicas in targets.items():
        if (name, index) not in refused:
            asked.setdefault(name, []).append(f"{index} " + ("cancelled" if replicas is None else f"to {replicas}"))
    for name, changes in asked.items():
        yield f"reassignment of topic {name}: {some(changes, most=_NAMED)}"


def _offsets_deleted(message: Any, response: Any) -> Lines:
    for topic in response.topics:
        deleted = [str(p.partition_index) for p in topic.partitions if not p.error_code]
        if deleted:
            partitions = some(deleted, most=_NAMED)
            yield f"offsets of group {_shown(message.group_id)} deleted, for topic {topic.name}: {partitions}"


def _offsets_set(message: Any, response: Any) -> Lines:
    """Commits of clients that are no members: a reset, or a consumer that assigns itself its partitions."""
    if message.member_id or message.generation_id_or_member_epoch >= 0:
        return ()
    return _offsets(message, response)


def _offsets(message: Any, response: Any) -> Iterator[str]:
    refused = {(t.name, t.topic_id, p.partition_index) for t in response.topics for p in t.partitions if p.error_code}
    for topic in message.topics:
        done = [p for p in topic.partitions if (topic.name, topic.topic_id, p.partition_index) not in refused]
        if done:
            name = topic.name or topic.topic_id.hex()
            offsets = some(
                [f"{p.partition_index} to {p.committed_offset}" for p in done[:_NAMED]], most=_NAMED, of=len(done)
            )
            yield f"offsets of group {_shown(message.group_id)} set by no member, for topic {name}: {offsets}"


def _members_removed(message: Any, response: Any) -> Lines:
    removed = [r.group_instance_id or r.member_id for r in response.members if not r.error_code]
    members = some(list(map(_shown, removed[:_NAMED])), most=_NAMED, of=len(removed))
    return (f"members of group {_shown(message.group_id)} removed: {members}",) if removed else ()


def _leaves_by_itself(request: Request, message: Any) -> bool:
    """A member's id begins with the client id of the consumer that it is. A static member never leaves by itself."""
    [first, *others] = message.members or [None]
    return not others and (first is None or first.member_id.startswith(f"{request.header.client_id}-"))


def _features_updated(message: Any, response: Any) -> Lines:
    if message.validate_only or response.error_code:
        return
    refused = {result.feature for result in response.results if result.error_code}
    levels = {update.feature: update.max_version_level for update in message.feature_updates}
    for feature, level in levels.items():
        if feature not in refused:
            yield f"feature {_shown(feature)} " + (f"set to level {level}" if level else "removed")


def _quotas_altered(message: Any, response: Any) -> Lines:
    if message.validate_only:
        return
    refused = {parts_named(entry) for entry in response.entries if entry.error_code}
    for entry in message.entries:
        parts = parts_named(entry)
        if parts not in refused:
            whose = " and ".join(f"{type_} {_shown(name)}" if name else f"every {type_}" for type_, name in parts)
            changes = [f"{op.key} removed" if op.remove else f"{op.key}={op.value:.15g}" for op in entry.ops]
            yield f"quotas of {whose} changed: {some(changes, most=_NAMED)}"


def _passwords_altered(message: Any, response: Any) -> Lines:
    done = {result.user for result in response.results if not result.error_code}
    for verb, changes in (("deleted", message.deletions), ("set", message.upsertions)):
        for change in changes:
            if change.name in done:
                yield f"{NUMBERED[change.mechanism]} password of user {_shown(change.name)} {verb}"


def _acls_created(message: Any, response: Any) -> Lines:
    for asked, result in zip(message.creations, response.results, strict=True):
        if not result.error_code:
            yield f"ACL created: {_acl(asked, asked.resource_pattern_type)}"


def _acls_deleted(message: Any, response: Any) -> Lines:
    for result in response.filter_results:
        for acl in result.matching_acls:
            if not acl.error_code:
                yield f"ACL deleted: {_acl(acl, acl.pattern_type)}"


def _acl(acl: Any, pattern_type: int) -> str:
    prefixed = "*" if pattern_type == PatternType.PREFIXED else ""
    return (
        f"{PermissionType(acl.permission_type).name.lower()} {_shown(acl.principal)} from {_shown(acl.host)} "
        f"{Operation(acl.operation).name.lower()} on {Secured(acl.resource_type).name.lower()} "
        f"{_shown(acl.resource_name)}{prefixed}"
    )


def _token_created(message: Any, response: Any) -> Lines:
    if response.error_code:
        return
    owner = _shown(f"{response.principal_type}:{response.principal_name}")
    renewers = [_shown(f"{each.principal_type}:{each.principal_name}") for each in message.renewers]
    renewed = f", to be renewed by {some(renewers, most=_NAMED)}" if renewers else ""
    yield f"delegation token {response.token_id} of {owner} created{renewed}"


def _token_expiry_changed(message: Any, response: Any) -> Lines:
    """Which one it is the log of `cluster.tokens` says: these requests name it by its secret."""
    return () if response.error_code else (f"expiry of a delegation token set to {response.expiry_timestamp_ms}",)


CHANGES: Mapping[int, Change] = {
    8: _offsets_set,
    13: _members_removed,
    19: _topics_created,
    21: _records_deleted,
    30: _acls_created,
    31: _acls_deleted,
    33: _settings_replaced,
    34: _replicas_moved,
    37: _partitions_added,
    38: _token_created,
    39: _token_expiry_changed,
    40: _token_expiry_changed,
    42: _groups_deleted,
    43: _leaders_elected,
    44: _settings_altered,
    45: _reassignments_asked,
    47: _offsets_deleted,
    49: _quotas_altered,
    51: _passwords_altered,
    57: _features_updated,
}
TOLD_BY_HANDLERS: Final = frozenset({20})
"""Of topics that are deleted, neither the request nor its answer tells what they were."""
_BY_ANYBODY: Final = frozenset({_offsets_set, _members_removed, _token_created, _token_expiry_changed})
"""What takes no right to look after a cluster or a topic."""


def _resource(kind: int, name: str) -> str:
    if kind == ResourceType.BROKER:
        return f"broker {name}" if name else "all brokers"
    return f"{ResourceType(kind).name.lower().replace('_', ' ')} {_shown(name)}"


def _alteration(config: Any) -> str:
    match Alteration(config.config_operation):
        case Alteration.SET:
            return _setting(config.name, config.value)
        case Alteration.DELETE:
            return f"{config.name} to its default"
        case Alteration.APPEND:
            return _setting(config.name, config.value, "+=")
        case Alteration.SUBTRACT:
            return _setting(config.name, config.value, "-=")


def _setting(name: str, value: str | None, sign: str = "=") -> str:
    setting = find_setting(name)
    return (
        f"{name}{sign}(hidden)" if setting is not None and setting.sensitive else f"{name}{sign}{_shown(value or '')}"
    )


def _shown(text: str) -> str:
    """Text from a client, escaped and cut: it must neither begin a new line in the log nor fill it."""
    short = text if len(text) <= 200 else f"{text[:200]}…"
    return short if short.isprintable() else short.encode("unicode_escape").decode()
