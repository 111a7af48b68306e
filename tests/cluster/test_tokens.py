"""Delegation tokens: their rules, their nodes, and that all brokers follow them."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from kafkad.cluster.tokens import DelegationTokens, TokenSettings
from kafkad.config import load
from kafkad.errors import ErrorCode, KafkaError
from kafkad.meta.embedded import EmbeddedStore
from kafkad.meta.notes import KEPT_MS
from kafkad.meta.retrying import RETRY_MS
from kafkad.meta.security_znodes import DelegationToken, DelegationTokenChange
from kafkad.meta.store import ConnectionLoss, MetaError, MultiFailed, NoRoom, Operation, Refused, Result
from kafkad.security.scram import ScramCredential
from kafkad.timers import Timers
from tests.fakes import FakeClock, turns

GOLDEN = Path(__file__).parents[1] / "golden" / "security"
VECTORS = json.loads((GOLDEN / "vectors.json").read_text())["delegation_token"]
HOUR = 3_600_000
DAY = 24 * HOUR
ALICE, BOB, CAROL = "User:alice", "User:bob", "User:carol"


class Place:
    """Two brokers over one store."""

    def __init__(self, *settings: str) -> None:
        self.clock = FakeClock()
        self.timers = Timers()
        tree = EmbeddedStore.in_memory(self.clock)
        self.store = tree.session()
        config = load(None, ["delegation.token.secret.key=lab-master-key", *settings], {})
        self.one, self.other = (
            DelegationTokens(session, TokenSettings.of(config), self.clock, self.timers)
            for session in (self.store, tree.session())
        )

    async def node(self, token_id: str) -> DelegationToken:
        return DelegationToken.decode((await self.store.get(DelegationToken.path(token_id)))[0])

    async def create(self, *renewers: str, lifetime_ms: int = -1) -> DelegationToken:
        return await self.one.create(ALICE, CAROL, renewers, lifetime_ms)


def at_a_place(test: Callable[[Place], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        async def whole() -> None:
            place = Place()
            await place.one.start()
            await place.other.start()
            try:
                await test(place)
            finally:
                await place.one.stop()
                await place.other.stop()

        asyncio.run(whole())

    return run


async def refusal(asked: Awaitable[object]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        await asked
    return ErrorCode(caught.value.code)


@at_a_place
async def test_secrets_are_kafkas(place: Place) -> None:
    for vector in VECTORS:
        assert b64encode(place.one.secret(vector["token_id"])).decode() == vector["hmac"]


@at_a_place
async def test_a_new_token_is_in_the_store_and_at_all_brokers(place: Place) -> None:
    token = await place.create(BOB)
    now_ms = place.clock.now_ms()
    assert token == DelegationToken(token.token_id, ALICE, CAROL, (BOB,), now_ms, now_ms + DAY, now_ms + 7 * DAY)
    assert len(token.token_id) == 22
    assert await place.node(token.token_id) == token
    note, _ = await place.store.get("/delegation_token/token_changes/token_change_0000000000")
    assert note.decode() == token.token_id
    assert list(place.one.all) == [token]
    await turns()
    assert list(place.other.all) == [token]
    assert place.other.usable(token.token_id) == token
    assert place.other.usable("another") is None


def test_the_longest_lifetime_ends_at_the_last_time_that_can_be_said() -> None:
    async def whole() -> None:
        longest = (1 << 63) - 1
        place = Place(*(f"delegation.token.{name}={longest}" for name in ("max.lifetime.ms", "expiry.time.ms")))
        await place.one.start()
        token = await place.create()
        assert (token.expires_ms, token.max_ms) == (longest, longest)
        assert await place.node(token.token_id) == token
        assert await place.one.renew(place.one.secret(token.token_id), ALICE, longest) == longest
        await place.one.stop()

    asyncio.run(whole())


@at_a_place
async def test_a_lifetime_is_no_longer_than_it_may_be(place: Place) -> None:
    assert (await place.create(lifetime_ms=HOUR)).expires_ms == place.clock.now_ms() + HOUR
    assert (await place.create(lifetime_ms=30 * DAY)).max_ms == place.clock.now_ms() + 7 * DAY
    assert (await place.create(lifetime_ms=0)).max_ms == place.clock.now_ms() + 7 * DAY


@at_a_place
async def test_an_owner_has_so_many_tokens_until_they_go(place: Place) -> None:
    for tokens in (place.one, place.other):
        tokens._settings = tokens._settings._replace(most_of_owner=3)
    first, _, third = [await place.create() for _ in range(3)]
    assert await refusal(place.create()) is ErrorCode.POLICY_VIOLATION
    await turns()
    assert await refusal(place.other.create(ALICE, ALICE, [], -1)) is ErrorCode.POLICY_VIOLATION
    await place.one.create(BOB, ALICE, [], -1)
    await place.one.renew(place.one.secret(first.token_id), ALICE, -1)
    await place.one.expire(place.one.secret(third.token_id), ALICE, -1)
    await turns()
    await place.other.create(ALICE, ALICE, [], -1)
    await turns()
    assert await refusal(place.create()) is ErrorCode.POLICY_VIOLATION
    assert len(await place.store.children("/delegation_token/tokens")) == 4


@at_a_place
async def test_renewers_of_all_tokens_of_an_owner_have_a_bound(place: Place) -> None:
    long = "User:" + "u" * 999_995
    for _ in range(4):
        await place.create(long)
    assert await refusal(place.create(long)) is ErrorCode.POLICY_VIOLATION
    await place.create(BOB)
    await place.one.create(BOB, ALICE, [long], -1)


@at_a_place
async def test_renewing(place: Place) -> None:
    token = await place.create(BOB)
    secret = place.one.secret(token.token_id)
    place.clock.advance(HOUR)
    assert await place.one.renew(secret, ALICE, -1) == place.clock.now_ms() + DAY
    assert await place.one.renew(secret, BOB, 5) == place.clock.now_ms() + 5
    assert await place.one.renew(secret, BOB, 30 * DAY) == token.max_ms
    assert (await place.node(token.token_id)).expires_ms == token.max_ms
    assert await refusal(place.one.renew(secret, CAROL, -1)) is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert await refusal(place.one.renew(b"x", ALICE, -1)) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    await turns()
    await place.other.renew(secret, ALICE, 10)
    place.clock.advance(11)
    assert await refusal(place.one.renew(secret, ALICE, -1)) is ErrorCode.DELEGATION_TOKEN_EXPIRED


@at_a_place
async def test_expiring(place: Place) -> None:
    token = await place.create(BOB)
    secret = place.one.secret(token.token_id)
    assert await refusal(place.one.expire(secret, CAROL, -1)) is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert await place.one.expire(secret, ALICE, 100) == place.clock.now_ms() + 100
    assert await place.one.expire(secret, ALICE, 30 * DAY) == token.max_ms
    await place.one.expire(secret, ALICE, 0)
    place.clock.advance(1)
    assert place.one.usable(token.token_id) is None
    assert await refusal(place.one.expire(secret, ALICE, 5)) is ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert await place.one.expire(secret, BOB, -1) == place.clock.now_ms()
    assert list(place.one.all) == []
    assert await refusal(place.one.expire(secret, ALICE, -1)) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert await place.store.children("/delegation_token/tokens") == []
    await turns()
    assert list(place.other.all) == []


@at_a_place
async def test_all_brokers_are_told_of_the_end(place: Place) -> None:
    ended: list[list[str]] = [[], []]
    for tokens, seen in zip((place.one, place.other), ended, strict=True):
        tokens.on_end.append(seen.append)
    by_hand, by_itself = await place.create(), await place.create()
    await place.other.catch_up()
    secret = place.one.secret(by_hand.token_id)
    await place.one.expire(secret, ALICE, HOUR)
    await place.other.catch_up()
    assert ended == [[], []]
    await place.one.expire(secret, ALICE, -1)
    place.clock.advance(DAY + 1)
    await place.one.sweep()
    await place.other.catch_up()
    assert ended == [[by_hand.token_id, by_itself.token_id]] * 2


@at_a_place
async def test_whoever_is_logged_in_is_told_when_a_token_expires(place: Place) -> None:
    """At all brokers, though it stays in the store until the sweep; also where it expires sooner than it was to."""
    ended: list[list[str]] = [[], []]
    for tokens, seen in zip((place.one, place.other), ended, strict=True):
        tokens.on_end.append(seen.append)

    async def later(ms: int) -> None:
        await turns()
        place.clock.advance(ms)
        place.timers.expire(place.clock.monotonic_ms())
        await turns()

    at_once, soon, renewed = [await place.create() for _ in range(3)]
    await place.one.expire(place.one.secret(at_once.token_id), ALICE, 0)
    await place.one.expire(place.one.secret(soon.token_id), ALICE, 60_000)
    await place.one.expire(place.one.secret(renewed.token_id), ALICE, 60_000)
    await place.one.renew(place.one.secret(renewed.token_id), ALICE, 2 * 60_000)
    await later(1)
    assert ended == [[at_once.token_id]] * 2
    await later(59_999)
    assert ended == [[at_once.token_id]] * 2
    await later(1)
    assert ended == [[at_once.token_id, soon.token_id]] * 2
    await later(60_000)
    assert ended == [[at_once.token_id, soon.token_id, renewed.token_id]] * 2
    assert len(await place.store.children("/delegation_token/tokens")) == 3


@at_a_place
async def test_a_token_that_has_expired_when_it_is_read(place: Place) -> None:
    ended: list[str] = []
    place.other.on_end.append(ended.append)
    token = await place.create()
    await turns()
    over = token._replace(expires_ms=place.clock.now_ms() - 1)
    await place.store.set(DelegationToken.path(token.token_id), over.encode())
    await place.other.session_renewed()
    assert ended == [token.token_id]


@at_a_place
async def test_two_brokers_change_a_token_at_the_same_time(place: Place) -> None:
    token = await place.create(BOB)
    await turns()
    secret = place.one.secret(token.token_id)
    await asyncio.gather(place.one.renew(secret, ALICE, HOUR), place.other.renew(secret, BOB, 2 * HOUR))
    await turns()
    assert list(place.one.all) == list(place.other.all) == [await place.node(token.token_id)]


@at_a_place
async def test_expired_tokens_are_swept_away_each_hour(place: Place) -> None:
    short, long = await place.create(lifetime_ms=10), await place.create()
    await turns()
    place.clock.advance(HOUR - 1)
    place.timers.expire(place.clock.monotonic_ms())
    await turns()
    assert await place.store.children("/delegation_token/tokens") == sorted([short.token_id, long.token_id])
    place.clock.advance(1)
    place.timers.expire(place.clock.monotonic_ms())
    await turns()
    assert await place.store.children("/delegation_token/tokens") == [long.token_id]
    assert list(place.one.all) == list(place.other.all) == [long]


@at_a_place
async def test_a_sweep_goes_on_once_the_store_is_back(place: Place) -> None:
    short, long = await place.create(lifetime_ms=10), await place.create()
    await turns()

    async def lost(operations: object) -> list[Result]:
        raise ConnectionLoss("metadata", "no space left on device")

    for tokens in (place.one, place.other):
        tokens._store.multi = lost  # type: ignore[assignment, method-assign]
    place.clock.advance(HOUR)
    place.timers.expire(place.clock.monotonic_ms())
    await turns()
    assert await refusal(place.create()) is ErrorCode.KAFKA_STORAGE_ERROR
    assert await refusal(place.one.expire(place.one.secret(long.token_id), ALICE, -1)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert len(await place.store.children("/delegation_token/tokens")) == 2
    for tokens in (place.one, place.other):
        del tokens._store.multi
    place.clock.advance(RETRY_MS)
    place.timers.expire(place.clock.monotonic_ms())
    await turns()
    assert await place.store.children("/delegation_token/tokens") == [long.token_id]
    assert short not in place.one.all


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            MultiFailed(0, Refused("/delegation_token/tokens/a", "NoAuth")),
            "cannot remove delegation tokens that have expired, and try again later",
        ),
        (RuntimeError("bug"), "internal error in the sweep of delegation tokens; it will be retried"),
    ],
)
def test_a_sweep_that_fails_is_not_the_last(error: Exception, told: str, caplog: pytest.LogCaptureFixture) -> None:
    @at_a_place
    async def test(place: Place) -> None:
        await place.create(lifetime_ms=10)
        await turns()

        async def refused(operations: object) -> list[Result]:
            raise error

        for tokens in (place.one, place.other):
            tokens._store.multi = refused  # type: ignore[assignment, method-assign]
        place.clock.advance(HOUR)
        place.timers.expire(place.clock.monotonic_ms())
        await turns()
        assert caplog.text.count(told) == 2
        for tokens in (place.one, place.other):
            del tokens._store.multi
        place.clock.advance(HOUR)
        place.timers.expire(place.clock.monotonic_ms())
        await turns()
        assert await place.store.children("/delegation_token/tokens") == []

    test()


@at_a_place
async def test_a_token_that_the_store_refuses_to_remove_keeps_no_other_back(place: Place) -> None:
    refused, *_ = [await place.create(lifetime_ms=10) for _ in range(3)]
    path = DelegationToken.path(refused.token_id)
    multi = place.store.multi

    async def refusing(operations: Sequence[Operation]) -> list[Result]:
        if operations[0].path == path:
            raise MultiFailed(0, Refused(path, "NoAuth"))
        return await multi(operations)

    place.store.multi = refusing  # type: ignore[method-assign]
    place.clock.advance(11)
    await place.one.sweep()
    assert list(place.one.all) == [refused]
    del place.store.multi
    await place.one.sweep()
    assert list(place.one.all) == []


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (NoRoom("/delegation_token/tokens/a", "the disk is full"), "the disk is full"),
        (MultiFailed(0, Refused("/delegation_token/tokens/a", "NoAuth")), "NoAuth"),
    ],
)
def test_whoever_asks_for_what_the_store_refuses_is_told_why(error: MetaError, why: str) -> None:
    @at_a_place
    async def test(place: Place) -> None:
        token = await place.create()

        async def refusing(operations: object) -> list[Result]:
            raise error

        place.one._store.multi = refusing  # type: ignore[assignment, method-assign]
        for change in (place.create(), place.one.renew(place.one.secret(token.token_id), ALICE, -1)):
            with pytest.raises(KafkaError, match=why) as refused:
                await change
            assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR

    test()


@at_a_place
async def test_a_note_that_cannot_be_read_keeps_nobody_from_the_next(place: Place) -> None:
    await place.store.create(DelegationTokenChange.PREFIX, b"\xff", sequential=True)
    await turns()
    token = await place.create()
    await turns()
    assert list(place.other.all) == [token]


@at_a_place
async def test_a_token_that_cannot_be_read_is_left_out(place: Place) -> None:
    good = await place.create()
    times = '"issueTimestamp":1,"expiryTimestamp":2,"maxTimestamp"'
    for number, text in enumerate(
        (
            "{",
            '{"owner":' + "[" * 100_000,
            f'{{"owner":5,"tokenId":"t",{times}:3}}',
            f'{{"owner":"User%3Aa","tokenId":"t",{times}:1e999}}',
            f'{{"owner":"User%3Aa","tokenId":"t",{times}:{1 << 63}}}',
        )
    ):
        await place.store.create(DelegationToken.path(f"damaged-{number}"), text.encode())
    await place.one.session_renewed()
    assert list(place.one.all) == [good]
    secret = place.one.secret("damaged-0")
    assert await refusal(place.one.renew(secret, ALICE, 1)) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND


@at_a_place
async def test_a_token_that_went_while_there_was_no_session(place: Place) -> None:
    token = await place.create()
    await place.store.delete(DelegationToken.path(token.token_id))
    await place.one.session_renewed()
    assert list(place.one.all) == []


@at_a_place
async def test_old_notes_are_removed(place: Place) -> None:
    await place.create()
    place.clock.advance(KEPT_MS + 1)
    await place.create()
    await turns()
    assert await place.store.children("/delegation_token/token_changes") == ["token_change_0000000001"]


def test_the_former_name_of_the_secret_key() -> None:
    config = load(None, ["delegation.token.master.key=old", "delegation.token.max.lifetime.ms=5"], {})
    assert TokenSettings.of(config) == TokenSettings(b"old", 5, DAY, HOUR, 10_000)


@at_a_place
async def test_a_token_logs_in_as_its_owner_until_it_expires(place: Place) -> None:
    token = await place.create()
    account = place.one.account("SCRAM-SHA-256", token.token_id)
    assert account is not None
    assert (account.user, account.ends_ms) == ("alice", token.expires_ms)
    assert place.one.account("SCRAM-SHA-256", token.token_id) == account
    password = b64encode(place.one.secret(token.token_id)).decode()
    salt, iterations = account.credential.salt, account.credential.iterations
    assert account.credential == ScramCredential.of_password("sha256", password, salt, iterations)
    other = place.one.account("SCRAM-SHA-512", token.token_id)
    assert other is not None
    assert len(other.credential.stored_key) == 64
    assert place.one.account("SCRAM-SHA-256", "another") is None
    place.clock.advance(token.expires_ms + 1 - place.clock.now_ms())
    assert place.one.account("SCRAM-SHA-256", token.token_id) is None
