"""Offsets in the metadata store, as version 0 of the APIs keeps them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from kafkad.errors import ErrorCode
from kafkad.group.committing import Fetched, OffsetToCommit
from kafkad.group.stored import StoredOffsets
from kafkad.meta.embedded import EmbeddedStore
from kafkad.meta.store import ensure_path
from tests.fakes import FakeClock

AT = ("t", 3)


class World:
    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self.store = EmbeddedStore.in_memory(FakeClock()).session()
        self.offsets = StoredOffsets(self.store, 100)
        self.runner.run(ensure_path(self.store, "/consumers"))

    def commit(self, offset: int, metadata: str | None = None, group: str = "g") -> ErrorCode:
        return self.runner.run(self.offsets.commit(group, OffsetToCommit(*AT, offset, -1, metadata)))

    def fetch(self, group: str = "g") -> Fetched:
        return self.runner.run(self.offsets.fetch(group, AT))

    def node(self) -> bytes:
        return self.runner.run(self.store.get("/consumers/g/offsets/t/3"))[0]


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.runner.close()


def test_an_offset_is_a_node_of_its_own(world: World) -> None:
    assert world.commit(40, "not kept") == ErrorCode.NONE
    assert world.node() == b"40"
    assert world.fetch() == Fetched(AT, 40)
    assert world.commit(41) == ErrorCode.NONE
    assert world.fetch() == Fetched(AT, 41)


def test_nothing_was_committed(world: World) -> None:
    assert world.fetch() == Fetched(AT, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_metadata_that_are_too_long(world: World) -> None:
    assert world.commit(1, "m" * 101) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert world.fetch().error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_what_somebody_else_wrote_there(world: World) -> None:
    world.commit(1)
    world.runner.run(world.store.set("/consumers/g/offsets/t/3", b"none"))
    assert world.fetch() == Fetched(AT, error=ErrorCode.UNKNOWN_SERVER_ERROR)


@pytest.mark.parametrize("group", ["", ".", "a/../b", "a//b", "a/", "\x01", "\x85", "\ue000", "\U0001f600"])
def test_a_name_that_is_no_path(world: World, group: str) -> None:
    assert world.commit(1, group=group) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.fetch(group) == Fetched(AT, error=ErrorCode.UNKNOWN_SERVER_ERROR)
