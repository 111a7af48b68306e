"""Removing members from a group, and seeing what comes of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from kafkad.errors import ErrorCode
from kctl.errors import KctlError, failure
from kctl.groups.group import Group, Member, described_groups

if TYPE_CHECKING:
    from kafkad.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
    from kctl.reach.session import Session

_LOOK_AGAIN_SECONDS = 0.2


def evict(session: Session, group: str, members: Sequence[Member], reason: str) -> dict[str, KctlError]:
    """By instance, or by id; those that were refused."""
    answer = session.ask_coordinators([group], lambda _: _request(group, members, reason), lambda r: _read(group, r))
    told = answer[group]
    if isinstance(told, KctlError):
        return {member.id: told for member in members}
    return {
        member.id: failure(code, f'member "{member.id}" of group "{group}"')
        for member, code in zip(members, told, strict=False)
        if code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID)  # it has left by itself meanwhile
    }


def _request(group: str, members: Sequence[Member], reason: str) -> LeaveGroupRequest:
    from kafkad.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity

    listed = [
        MemberIdentity(
            member_id="" if member.instance else member.id,
            group_instance_id=member.instance,
            reason=reason,
        )
        for member in members
    ]
    return LeaveGroupRequest(group_id=group, members=listed)


def _read(group: str, response: LeaveGroupResponse) -> Iterator[tuple[str, int, list[int]]]:
    yield group, response.error_code, [member.error_code for member in response.members]


def until(session: Session, name: str, enough: Callable[[Group], bool], seconds: float) -> Group:
    """The group as soon as it is so, or as it is when the time is over."""
    end = time.monotonic() + seconds
    while True:
        found = described_groups(session, [name])[name]
        if isinstance(found, KctlError):
            raise found
        if enough(found) or time.monotonic() >= end:
            return found
        time.sleep(_LOOK_AGAIN_SECONDS)
