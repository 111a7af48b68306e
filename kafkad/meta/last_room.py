"""Which changes do not get the last room that a full disk has for metadata."""

from __future__ import annotations

from collections.abc import Callable

from kafkad.meta.consumer_znodes import GROUPS
from kafkad.meta.readable import UNREADABLE
from kafkad.meta.security_znodes import DelegationToken
from kafkad.meta.store import Create, Operation, Set, parent_of
from kafkad.meta.znodes import TOPICS, Topic

_OF_CLIENTS = (f"{GROUPS}/", DelegationToken.path(""))


def can_wait(operation: Operation, find: Callable[[str], bytes | None]) -> bool:
    """True of what clients add, again and again if they like: topics, partitions, offsets that version 0 commits,
    delegation tokens and their renewals. `find` tells what a node has now.

    Whatever else there is may make room, or keep the cluster going: deletions, settings, moves, elections, ISRs,
    registrations; and quotas, users and ACLs, which may keep out whoever fills the disk.
    """
    if not isinstance(operation, Create | Set):
        return False
    if operation.path.startswith(_OF_CLIENTS):
        return True
    if parent_of(operation.path) != TOPICS:
        return False
    return isinstance(operation, Create) or _partitions(operation.data) > _partitions(find(operation.path))


def _partitions(topic: bytes | None) -> int:
    try:
        return 0 if topic is None else len(Topic.decode(topic).partitions)
    except UNREADABLE:
        return 0
