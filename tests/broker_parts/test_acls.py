"""ACLs in the metadata store: Kafka's texts, and every broker decides by what any of them writes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kafkad.clock import SystemClock
from kafkad.cluster.acls import Acls
from kafkad.errors import KafkaError
from kafkad.meta.embedded import EmbeddedStore
from kafkad.meta.notes import KEPT_MS
from kafkad.meta.store import MetaStore, ensure_path
from kafkad.names import TopicPartition
from kafkad.security.access_log import AccessLog
from kafkad.security.acl import Acl, AclAuthorizer, Pattern
from kafkad.security.authorizer import Operation, PatternType, PermissionType, Principal, ResourceType
from kafkad.timers import Timers
from tests.broker_parts.several import NETWORK, Brokers
from tests.fakes import FakeClock, give_way_each_time, turns
from tests.one_broker import OneBroker

GOLDEN = Path(__file__).parents[1] / "golden" / "security" / "acl-znodes.json"
TOPIC, LITERAL, PREFIXED = ResourceType.TOPIC, PatternType.LITERAL, PatternType.PREFIXED
READ, ALLOW = Operation.READ, PermissionType.ALLOW
ORDERS = Pattern(TOPIC, "orders")
ALICE_READS = Acl("User:alice", "*", READ, ALLOW)


class Broker:
    def __init__(self, store: MetaStore, clock: FakeClock | SystemClock) -> None:
        self.store = store
        self.authorizer = AclAuthorizer((), False, AccessLog(lambda: 0.0, lambda at, action: None))
        self.acls = Acls(store, self.authorizer, clock, Timers())

    def allows(self, user: str, topic: str, operation: Operation = READ) -> bool:
        return self.allows_at(user, "10.0.0.1", topic, operation)

    def allows_at(self, user: str, host: str, topic: str, operation: Operation = READ) -> bool:
        return self.authorizer.identity(Principal("User", user), host).allows(operation, TOPIC, topic)


@asynccontextmanager
async def brokers(number: int, store: EmbeddedStore, clock: FakeClock) -> AsyncIterator[list[Broker]]:
    found = [Broker(store.session(), clock) for _ in range(number)]
    for broker in found:
        await broker.acls.start()
    yield found
    for broker in found:
        await broker.acls.stop()


def with_brokers(number: int, scenario: Callable[..., Awaitable[None]]) -> None:
    async def run() -> None:
        clock = FakeClock()
        async with brokers(number, EmbeddedStore.in_memory(clock), clock) as found:
            await scenario(clock, *found)

    asyncio.run(run())


async def settled() -> None:
    await turns(50)


def test_a_change_at_one_broker_is_known_to_it_at_once_and_to_the_other_soon() -> None:
    async def scenario(clock: FakeClock, one: Broker, other: Broker) -> None:
        await one.acls.add(ORDERS, [ALICE_READS])
        assert one.allows("alice", "orders")
        await settled()
        assert other.allows("alice", "orders")
        ord_ = Pattern(TOPIC, "ord", PREFIXED)
        await other.acls.add(ord_, [Acl("User:alice", "*", READ, PermissionType.DENY)])
        await settled()
        assert not one.allows("alice", "orders")
        await other.acls.remove(ord_, list(acl for pattern, acl in other.acls if pattern == ord_))
        await one.acls.remove(ORDERS, [ALICE_READS])
        await settled()
        assert not list(one.acls) and not list(other.acls)
        assert await one.store.children("/kafka-acl/Topic") == [], "an empty node is deleted"

    with_brokers(2, scenario)


def test_two_brokers_that_change_one_pattern_keep_both_changes() -> None:
    async def scenario(clock: FakeClock, one: Broker, other: Broker) -> None:
        users = [Acl(f"User:u{n}", "*", READ, ALLOW) for n in range(20)]
        await asyncio.gather(*[(one if n % 2 else other).acls.add(ORDERS, [acl]) for n, acl in enumerate(users)])
        await settled()
        for broker in (one, other):
            assert {acl for _, acl in broker.acls} == set(users)

    with_brokers(2, scenario)


class Mortal:
    """A session with the store of a broker that is killed after some writes."""

    def __init__(self, session: MetaStore, writes: int) -> None:
        self._session = session
        self._left = writes

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._session, name)
        return partial(self._write, found) if name in ("create", "set", "delete", "multi") else found

    async def _write(self, write: Callable[..., Awaitable[Any]], *arguments: Any, **named: Any) -> Any:
        if not self._left:
            await asyncio.Event().wait()
        self._left -= 1
        return await write(*arguments, **named)


@pytest.mark.parametrize("writes", range(3))
@pytest.mark.parametrize("begins_with", [(), (ALICE_READS,)], ids=["first", "last"])
def test_a_broker_that_is_killed_in_the_midst_of_a_change_leaves_all_brokers_with_the_same(
    begins_with: tuple[Acl, ...], writes: int
) -> None:
    async def scenario(clock: FakeClock, one: Broker, other: Broker) -> None:
        await one.acls.add(ORDERS, begins_with)
        await settled()
        one.acls._store = Mortal(one.store, writes)  # type: ignore[assignment]
        change = one.acls.remove if begins_with else one.acls.add
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(change(ORDERS, [ALICE_READS]), 0.05)
        await settled()
        is_there = "orders" in await other.store.children("/kafka-acl/Topic")
        assert other.allows("alice", "orders") is is_there

    with_brokers(2, scenario)


def test_what_another_broker_has_changed_already_is_known_when_it_is_asked_for_again() -> None:
    async def scenario(clock: FakeClock, one: Broker, other: Broker) -> None:
        await one.acls.add(ORDERS, [ALICE_READS])
        await settled()
        async with other.acls._reading:
            await one.acls.remove(ORDERS, [ALICE_READS])
            again = asyncio.create_task(other.acls.remove(ORDERS, [ALICE_READS]))
            await settled()
            assert other.allows("alice", "orders")
        await again
        assert not other.allows("alice", "orders")

    with_brokers(2, scenario)


def test_nothing_is_written_for_what_is_there_already() -> None:
    async def scenario(clock: FakeClock, one: Broker) -> None:
        for _ in range(2):
            await one.acls.add(ORDERS, [ALICE_READS, ALICE_READS])
        assert (await one.store.get("/kafka-acl/Topic/orders"))[1].version == 0
        assert len(await one.store.children("/kafka-acl-changes")) == 1

    with_brokers(1, scenario)


def test_the_note_of_a_change_of_its_own_is_no_change() -> None:
    async def scenario(clock: FakeClock, one: Broker, other: Broker) -> None:
        changes = {one: 0, other: 0}

        def count(broker: Broker) -> None:
            changes[broker] += 1

        for broker in changes:
            broker.acls.on_change.append(partial(count, broker))
        await one.acls.add(ORDERS, [ALICE_READS])
        await settled()
        await one.acls.remove(ORDERS, [ALICE_READS])
        await settled()
        assert list(changes.values()) == [2, 2]

    with_brokers(2, scenario)


def test_old_notes_are_removed() -> None:
    async def scenario(clock: FakeClock, one: Broker) -> None:
        await one.acls.add(ORDERS, [ALICE_READS])
        await settled()
        clock.advance(KEPT_MS + 1)
        await one.acls.remove(ORDERS, [ALICE_READS])
        await settled()
        assert await one.store.children("/kafka-acl-changes") == ["acl_changes_0000000001"]

    with_brokers(1, scenario)


def test_kafkas_nodes_are_read_and_written_in_the_same_text() -> None:
    tree = json.loads(GOLDEN.read_text())["in-use"]

    async def scenario(clock: FakeClock, empty: Broker) -> None:
        store = EmbeddedStore.in_memory(clock)
        session = store.session()
        for path, text in tree.items():
            await ensure_path(session, path)
            await session.set(path, (text or "").encode())
        async with brokers(1, store, clock) as [one]:
            assert one.allows("alice", "orders") and one.allows("anybody", "elsewhere", Operation.DESCRIBE)
            assert not one.allows("alice", "elsewhere")
            for pattern, acl in one.acls:
                await empty.acls.add(pattern, [acl])
        for path, text in tree.items():
            if text and "changes" not in path:
                assert (await empty.store.get(path))[0].decode() == text, path
        notes = {text for path, text in tree.items() if "changes_" in path and "removed" not in (text or "")}
        written = set()
        for parent in ("/kafka-acl-changes", "/kafka-acl-extended-changes"):
            for name in await empty.store.children(parent):
                written.add((await empty.store.get(f"{parent}/{name}"))[0].decode())
        assert written == notes

    with_brokers(1, scenario)


def test_a_fresh_store_has_the_nodes_that_kafka_makes() -> None:
    async def scenario(clock: FakeClock, one: Broker) -> None:
        for path in json.loads(GOLDEN.read_text())["fresh"]:
            assert (await one.store.get(path))[0] == b""

    with_brokers(1, scenario)


def test_thousands_of_acls_of_one_resource_are_written_and_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """With turns that are over at once, each piece is one: there is none with more than a few hundred ACLs."""
    give_way_each_time(monkeypatch)
    number, at_once = 5_000, 500
    many = [Acl(f"User:user{n}", f"10.0.{n // 250}.{n % 250}", READ, ALLOW) for n in range(number)]

    async def turns_of(work: Awaitable[Any], until: Callable[[], bool] = lambda: True) -> int:
        done, count = asyncio.ensure_future(work), 0
        while not (done.done() and until()):
            await asyncio.sleep(0)
            count += 1
        return count

    async def scenario(clock: FakeClock, one: Broker, other: Broker) -> None:
        steps = ("encoded", "rules"), ("decoded", "entries", "rules")
        both = await turns_of(one.acls.add(ORDERS, many), lambda: other.allows_at("user7", "10.0.0.7", "orders"))
        assert both >= (len(steps[0]) + len(steps[1])) * number / at_once
        own = await turns_of(one.acls.add(ORDERS, [ALICE_READS]))
        assert own >= len(steps[0]) * number / at_once
        assert one.allows("alice", "orders")
        assert one.allows_at("user7", "10.0.0.7", "orders")
        await settled()
        renewed = await turns_of(other.acls.session_renewed())
        assert renewed >= number / at_once
        assert await turns_of(one.acls.remove(ORDERS, [ALICE_READS])) >= own - 5
        assert not one.allows("alice", "orders")
        assert list(one.acls) == [(ORDERS, acl) for acl in many]

    with_brokers(2, scenario)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"acls":[{"principal":"User:a"}]}',
        '{"acls":[{"principal":"User:alice","permissionType":"Allow","host":"*","operation":"Fly"}],"version":1}',
        '{"acls":[{"principal":"User:alice","permissionType":"Allow","host":5,"operation":"Read"}],"version":1}',
        '{"acls":[{"principal":["User",":"],"permissionType":"Allow","host":"*","operation":"Read"}],"version":1}',
        '{"acls":[{"principal":"User:\\udc00","permissionType":"Allow","host":"*","operation":"Read"}],"version":1}',
        '{"acls":[{"principal":"User:%s","permissionType":"Allow","host":"*","operation":"Read"}]}' % ("x" * 40_000),
        '{"acls":' + "[" * 100_000,
    ],
)
def test_a_damaged_node_denies_what_it_is_about_until_it_is_mended(text: str) -> None:
    async def scenario(clock: FakeClock, one: Broker) -> None:
        await one.acls.add(Pattern(TOPIC, "*"), [ALICE_READS])
        await one.acls.add(ORDERS, [ALICE_READS])
        await one.store.set("/kafka-acl/Topic/orders", text.encode())
        await one.acls.session_renewed()
        assert one.allows("alice", "others")
        assert one.allows("alice", "orders") == (text == ""), "an empty node has no ACLs, in Kafka too"
        if text:
            assert one.acls.damaged == ["/kafka-acl/Topic/orders"]
            with pytest.raises(KafkaError, match="mend or delete the node"):
                await one.acls.add(ORDERS, [Acl("User:bob", "*", READ, ALLOW)])
        await one.store.delete("/kafka-acl/Topic/orders")
        await one.acls.session_renewed()
        assert one.allows("alice", "orders") and not one.acls.damaged

    with_brokers(1, scenario)


def test_a_note_that_cannot_be_read_lets_everything_be_read_again() -> None:
    async def scenario(clock: FakeClock, one: Broker) -> None:
        await one.store.create(
            "/kafka-acl/Topic/orders",
            b'{"acls":[{"principal":"User:alice","permissionType":"Allow","host":"*","operation":"Read"}],"version":1}',
        )
        assert not one.allows("alice", "orders")
        await one.store.create("/kafka-acl-changes/acl_changes_", b"what is this", sequential=True)
        await settled()
        assert one.allows("alice", "orders")

    with_brokers(1, scenario)


AUTHORIZER = "authorizer.class.name=kafka.security.authorizer.AclAuthorizer"


def test_brokers_that_are_super_users_replicate_and_share_acls(tmp_path: Path) -> None:
    brokers = Brokers(tmp_path, NETWORK, AUTHORIZER, "super.users=User:ANONYMOUS")
    brokers.start(1, 2)
    try:
        brokers.meet()
        brokers.create("a", (1, 2))
        a0 = TopicPartition("a", 0)
        brokers.until(lambda: brokers[1].parts.replicas.find(*a0) is not None, advance_ms=10)
        produced = brokers.ended(brokers[1].produce(a0, b"x"))
        assert (produced.error_code, produced.base_offset) == (0, 0)
        brokers.until(lambda: brokers[2].partition(a0).log.end_offset == 1, advance_ms=10)
        acls = brokers[1].parts.context.acls
        other = brokers[2].parts.identity.rights
        assert acls is not None and other is not None
        brokers.run(acls.add(ORDERS, [ALICE_READS]))
        alice = other.authorizer.identity(Principal("User", "alice"), "10.0.0.1")
        brokers.until(lambda: alice.allows(READ, TOPIC, "orders"))
    finally:
        brokers.stop()


def test_a_broker_that_may_not_act_for_the_cluster_is_told_nothing_and_sends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("kafkad"), "propagate", True)
    brokers = Brokers(tmp_path, NETWORK, AUTHORIZER, "super.users=User:somebody")
    with caplog.at_level(logging.INFO, "kafkad"):
        brokers.start(1, 2)
        try:
            brokers.until(lambda: "= ClusterAction" in caplog.text, advance_ms=10)
            assert "Principal = User:ANONYMOUS is Denied Operation = ClusterAction from host = 127.0.0.1" in caplog.text
            assert not brokers[2].parts.replicas.metadata.is_here.is_set()
            assert "come over the listener PLAINTEXT as User:ANONYMOUS, who has no right to" in caplog.text
        finally:
            brokers.leave(2)
            brokers.stop()


@pytest.mark.parametrize(("everyone", "told"), [("true", True), ("TRUE", True), ("False", False)])
def test_an_authorizer_that_lets_everybody_pass_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, everyone: str, told: bool
) -> None:
    monkeypatch.setattr(logging.getLogger("kafkad"), "propagate", True)
    OneBroker(tmp_path, AUTHORIZER, f"allow.everyone.if.no.acl.found={everyone}").stop()
    assert ("everybody may do everything" in caplog.text) is told
    assert "ClusterAction" not in caplog.text, "there is no other broker"
