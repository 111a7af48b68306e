"""Groups of types that commit no offsets: what is known of them, and that nothing is done to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafkad.errors import ErrorCode
from kafkad.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from kafkad.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from kafkad.wire.messages.share_group_describe import ShareGroupDescribeRequest
from kctl.errors import Exit, KctlError
from kctl.groups.group import Group, described_groups
from kctl.groups.group_lag import nothing_of
from kctl.groups.offset_changes import inactive, inactive_ones
from kctl.reach.session import Session


class Coordinator:
    """A session with one broker that lists these groups and describes none of them."""

    def __init__(self, serves: set[type], **types: str) -> None:
        self.settings = SimpleNamespace(quiet=True)
        self.cluster = SimpleNamespace(brokers={1: None})
        self._serves = serves
        self._types = types

    def version_of(self, request: type) -> int | None:
        return 0 if request in self._serves else None

    def coordinators(self, names: Iterable[str]) -> dict[str, int]:
        return dict.fromkeys(names, 1)

    def ask_coordinators(
        self,
        names: Iterable[str],
        build: Callable[[list[str]], object],
        read: Callable[[Any], Iterator[tuple[str, int, Any]]],
    ) -> dict[str, Any]:
        asked = build(list(names))
        assert isinstance(asked, DescribeGroupsRequest), asked
        gone = ErrorCode.GROUP_ID_NOT_FOUND
        answer = DescribeGroupsResponse(groups=[DescribedGroup(group_id=name, error_code=gone) for name in names])
        return {name: value for name, _, value in read(answer)}

    def unlisted(self, kind: int) -> list[KctlError]:
        return []

    def call_each(self, requests: dict[int, object]) -> dict[int, ListGroupsResponse]:
        assert ShareGroupDescribeRequest in self._serves, "a broker without other types was asked for its groups"
        groups = [
            ListedGroup(group_id=name, group_state="Stable", group_type=kind) for name, kind in self._types.items()
        ]
        return dict.fromkeys(requests, ListGroupsResponse(groups=groups))


def of(**types: str) -> Session:
    return cast(Session, Coordinator({ShareGroupDescribeRequest}, **types))


def test_a_group_that_no_coordinator_describes_is_what_the_list_says() -> None:
    assert described_groups(of(sharing="Share", app="Streams"), ["sharing", "app", "new"]) == {
        "sharing": Group("sharing", "Stable", "share", coordinator=1, protocol_type=""),
        "app": Group("app", "Stable", "streams", coordinator=1, protocol_type=""),
        "new": Group("new", "Dead", coordinator=1),
    }


def test_brokers_without_other_types_are_not_asked_for_their_groups() -> None:
    session = cast(Session, Coordinator(set()))
    assert described_groups(session, ["new"]) == {"new": Group("new", "Dead", coordinator=1)}


def test_offsets_of_a_share_group_cannot_change_however_long_one_waits() -> None:
    able, (error,) = inactive_ones(of(sharing="Share"), ["sharing", "new"], wait=True)
    assert list(able) == ["new"]
    refuses(error)
    with pytest.raises(KctlError) as caught:
        inactive(of(sharing="Share"), ["sharing"])
    refuses(caught.value)


def test_a_share_group_is_not_one_that_has_only_not_committed_yet() -> None:
    refuses(nothing_of(of(sharing="Share"), "sharing"))


def refuses(error: KctlError) -> None:
    assert (error.exit_code, error.what) == (
        Exit.REFUSED,
        'group "sharing" is a share group, which commits no offsets',
    )
    assert "kafka-share-groups.sh" in error.hints[0]
