"""Members of groups that send megabytes, and requests that name one group again and again."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.attacks.honest import TOPIC
from tests.clients.asker import Asker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

G = "attacked"
TOO_LARGE = -1
"""UNKNOWN_SERVER_ERROR, as Kafka says it to members."""
MEMBERS = 20


def coordinated(port: int) -> Asker:
    asker = Asker(port, timeout=60)
    while asker.ask("FindCoordinator", 3, {"key": G, "key_type": 0}).error_code:
        time.sleep(0.05)
    return asker


def ready(port: int) -> None:
    coordinated(port).client.close()


def joining(metadata: bytes) -> dict[str, Any]:
    named = {"group_id": G, "session_timeout_ms": 30_000, "member_id": "", "protocol_type": "consumer"}
    return named | {"protocols": [{"name": "range", "metadata": metadata}]}


def subscription(topics: Iterable[bytes]) -> bytes:
    named = [struct.pack(">h", len(topic)) + topic for topic in topics]
    return struct.pack(">hi", 0, len(named)) + b"".join(named) + struct.pack(">i", -1)


def test_a_subscription_of_20_mb(suffer: Callable[..., None]) -> None:
    metadata = subscription([b"ab"] * 5_000_000)

    def attack(port: int) -> None:
        asker = Asker(port, timeout=60)
        assert asker.ask("JoinGroup", 0, joining(metadata)).error_code == TOO_LARGE
        asker.client.close()

    suffer("a subscription of 20 MB", attack, ready)


def test_many_subscriptions_that_fit_into_a_record(suffer: Callable[..., None]) -> None:
    metadata = [subscription(b"%02d%04x" % (member, n % 0x10000) for n in range(110_000)) for member in range(MEMBERS)]

    def attack(port: int) -> None:
        askers = [Asker(port, timeout=60) for _ in range(MEMBERS)]
        for asker, one in zip(askers, metadata, strict=True):
            asker.send("JoinGroup", 0, joining(one))
        for asker in askers:
            asker.client.receive_frame()
            asker.client.close()

    suffer(f"{MEMBERS} subscriptions of 0.9 MB", attack, ready)


def test_members_with_thousands_of_protocols(suffer: Callable[..., None]) -> None:
    """The one that all of them know is the last of each."""

    def attack(port: int) -> None:
        askers = [Asker(port, timeout=60) for _ in range(5 * MEMBERS)]
        for number, asker in enumerate(askers):
            own = {"name": f"p{number}", "metadata": b""}
            asker.send("JoinGroup", 0, joining(b"") | {"protocols": [*[own] * 19_998, {"name": "z", "metadata": b""}]})
        for asker in askers:
            asker.client.receive_frame()
            asker.client.close()

    suffer(f"{5 * MEMBERS} members with 19,999 protocols", attack, ready)


def test_an_assignment_of_60_mb(suffer: Callable[..., None]) -> None:
    def attack(port: int) -> None:
        asker = Asker(port, timeout=60)
        joined = asker.ask("JoinGroup", 0, joining(b""))
        assignments = [{"member_id": joined.member_id, "assignment": bytes(60_000_000)}]
        synced = {"group_id": G, "generation_id": joined.generation_id, "member_id": joined.member_id}
        assert asker.ask("SyncGroup", 0, synced | {"assignments": assignments}).error_code == TOO_LARGE
        asker.client.close()

    suffer("an assignment of 60 MB", attack, ready)


def test_a_group_that_is_named_again_and_again(suffer: Callable[..., None]) -> None:
    def prepare(port: int) -> None:
        asker = coordinated(port)
        joined = asker.ask("JoinGroup", 0, joining(bytes(400_000)))
        member = {"group_id": G, "generation_id": joined.generation_id, "member_id": joined.member_id}
        asker.ask("SyncGroup", 0, member | {"assignments": []})
        offset = {"partition_index": 0, "committed_offset": 1, "committed_metadata": "m" * 4000}
        commit = {"group_id": G, "generation_id_or_member_epoch": joined.generation_id, "member_id": joined.member_id}
        answer = asker.ask("OffsetCommit", 5, commit | {"topics": [{"name": TOPIC, "partitions": [offset]}]})
        assert not answer.topics[0].partitions[0].error_code
        asker.client.close()

    def attack(port: int) -> None:
        asker = Asker(port, timeout=60)
        assert len(asker.ask("DescribeGroups", 0, {"groups": [G] * 9_000}).groups) == 1
        assert len(asker.ask("OffsetFetch", 8, {"groups": [{"group_id": G, "topics": None}] * 9_000}).groups) == 1
        asker.client.close()

    suffer("a group that is named 9,000 times", attack, prepare)
