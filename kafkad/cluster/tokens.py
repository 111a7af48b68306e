"""Delegation tokens, as the metadata store has them, in memory: read at the start, changed there, followed by notes.

Who has a token may log in as its owner until it expires. Its secret is the HMAC of its id by
`delegation.token.secret.key`, and never stored: brokers with the same key work it out.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple
from uuid import uuid4

from kafkad.clock import Clock
from kafkad.cluster.notify import notify_all
from kafkad.config import Config
from kafkad.errors import ErrorCode, KafkaError
from kafkad.meta.notes import Note, Notes, follow
from kafkad.meta.readable import readable
from kafkad.meta.refusals import storage_refused
from kafkad.meta.retrying import until_answered
from kafkad.meta.security_znodes import LAST_MS, DelegationToken, DelegationTokenChange
from kafkad.meta.store import (
    BadVersion,
    Create,
    Delete,
    MetaError,
    MetaStore,
    MultiFailed,
    NoNode,
    Operation,
    Refused,
    Set,
    ensure_path,
)
from kafkad.names import id_text
from kafkad.security.scram import FEWEST_ITERATIONS, HASHES, SALT_BITS, ScramAccount, ScramCredential, salt_of
from kafkad.timers import Timer, Timers, every

log = logging.getLogger(__name__)

_PARENT = "/delegation_token/tokens"
_NEVER = -1
_SWEEPING = "remove delegation tokens that have expired"
_MOST_OF_RENEWERS = 4 << 20
"""Characters of the renewers of all tokens of one owner, as they stand in the store: with their types."""


class TokenSettings(NamedTuple):
    secret_key: bytes
    max_lifetime_ms: int
    expiry_ms: int
    sweep_ms: int
    most_of_owner: int

    @classmethod
    def of(cls, config: Config) -> TokenSettings:
        secret = config.value("delegation.token.secret.key") or config.value("delegation.token.master.key")
        return cls(
            str(secret).encode(),
            config.long("delegation.token.max.lifetime.ms"),
            config.long("delegation.token.expiry.time.ms"),
            config.long("delegation.token.expiry.check.interval.ms"),
            config.int("kafkad.max.delegation.tokens.per.owner"),
        )


def _new_id() -> str:
    """None that a command line would take for an option, for which a dash in front is enough."""
    while (drawn := id_text(uuid4().bytes)).startswith("-"):
        pass
    return drawn


Decision = Callable[[DelegationToken], DelegationToken | None]
"""What becomes of a token; None: it goes. Raises KafkaError."""


class DelegationTokens:
    """Any broker may change tokens, be it the controller or not: writers are told apart by the node's version."""

    def __init__(self, store: MetaStore, settings: TokenSettings, clock: Clock, timers: Timers) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._timers = timers
        self._tokens: dict[str, DelegationToken] = {}
        self._ids: dict[bytes, str] = {}
        """By secret."""
        self._owned: dict[str, dict[str, int]] = {}
        """By owner: the ids of its tokens, and how many characters their renewers have."""
        self._credentials: dict[str, dict[str, ScramCredential]] = {}
        """By id and mechanism; made at the first login, for that takes milliseconds."""
        self.on_end: list[Callable[[str], None]] = []
        """Called with the id of each that has expired, or is no more."""
        self._ends: dict[str, Timer] = {}
        """By id, of those that have not expired."""
        self._news = asyncio.Event()
        self._notes = Notes(store, DelegationTokenChange.PREFIX, clock, self._news)
        self._reading = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await until_answered(self._begin, "read delegation tokens", self._clock, self._timers)
        following = follow(self._news, self.catch_up, "read changes of delegation tokens", self._clock, self._timers)
        self._tasks = [asyncio.create_task(work) for work in (following, self._sweep_now_and_then())]

    async def stop(self) -> None:
        for timer in self._ends.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _begin(self) -> None:
        for path in (_PARENT, DelegationTokenChange.PARENT):
            await ensure_path(self._store, path)
        await self.session_renewed()

    async def session_renewed(self) -> None:
        """Reads all there is again: notes may have come and gone while there was no session."""
        async with self._reading:
            await self._read_all()

    @property
    def all(self) -> Iterable[DelegationToken]:
        return self._tokens.values()

    def secret(self, token_id: str) -> bytes:
        return hmac.digest(self._settings.secret_key, token_id.encode(), "sha512")

    def usable(self, token_id: str) -> DelegationToken | None:
        """The token of that id, unless it has expired."""
        token = self._tokens.get(token_id)
        return token if token is not None and not self._has_expired(token) else None

    def account(self, mechanism: str, token_id: str) -> ScramAccount | None:
        """A token's id and its secret in base64 log in as a user's name and password."""
        token = self.usable(token_id)
        if token is None:
            return None
        kept = self._credentials.setdefault(token_id, {})
        if mechanism not in kept:
            password = b64encode(self.secret(token_id)).decode()
            salt = salt_of(secrets.randbits(SALT_BITS))
            kept[mechanism] = ScramCredential.of_password(HASHES[mechanism], password, salt, FEWEST_ITERATIONS)
        return ScramAccount(kept[mechanism], token.owner.partition(":")[2], min(token.expires_ms, token.max_ms))

    async def create(
        self, owner: str, requester: str, renewers: Iterable[str], max_lifetime_ms: int
    ) -> DelegationToken:
        now, longest = self._clock.now_ms(), self._settings.max_lifetime_ms
        max_ms = min(now + (min(max_lifetime_ms, longest) if max_lifetime_ms > 0 else longest), LAST_MS)
        token = DelegationToken(
            token_id=_new_id(),
            owner=owner,
            requester=requester,
            renewers=tuple(renewers),
            issued_ms=now,
            expires_ms=min(max_ms, now + self._settings.expiry_ms),
            max_ms=max_ms,
        )
        async with self._reading:
            self._refuse_more(token)
            with _asked_for():
                await self._write(token.token_id, Create(DelegationToken.path(token.token_id), token.encode()))
            self._keep(token.token_id, token)
        return token

    def _refuse_more(self, token: DelegationToken) -> None:
        """Anybody who is logged in may ask for tokens, and each is in the store and in the memory of all brokers until
        it has expired."""
        owned, most = self._owned.get(token.owner, {}), self._settings.most_of_owner
        if len(owned) >= most:
            why = f"it has {len(owned)}, and kafkad.max.delegation.tokens.per.owner is {most}"
        elif sum(owned.values()) + _of_renewers(token) > _MOST_OF_RENEWERS:
            why = f"the renewers of its {len(owned)} tokens and of this one have over {_MOST_OF_RENEWERS} characters"
        else:
            return
        log.info("no more delegation tokens for %s: %s", token.owner, why)
        raise KafkaError(ErrorCode.POLICY_VIOLATION, why)

    async def renew(self, secret: bytes, requester: str, period_ms: int) -> int:
        """The new time of expiry; a negative period stands for the default one. Raises KafkaError."""
        now = self._clock.now_ms()
        until_ms = now + (self._settings.expiry_ms if period_ms < 0 else period_ms)

        def renewed(token: DelegationToken) -> DelegationToken:
            self._refuse_expired(token)
            return token._replace(expires_ms=min(token.max_ms, until_ms))

        return await self._change(secret, requester, renewed)

    async def expire(self, secret: bytes, requester: str, period_ms: int) -> int:
        """The time at which it expires; a negative period means now. Raises KafkaError."""
        now = self._clock.now_ms()

        def expiring(token: DelegationToken) -> DelegationToken | None:
            if period_ms < 0:
                return None
            self._refuse_expired(token)
            return token._replace(expires_ms=min(token.max_ms, now + period_ms))

        return await self._change(secret, requester, expiring)

    async def _change(self, secret: bytes, requester: str, decide: Decision) -> int:
        """By whoever may do so: the owner and the renewers."""
        token_id = self._ids.get(secret)
        if token_id is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        async with self._reading:
            while True:
                with _asked_for():
                    token, version = await self._found(token_id)
                if token is None:
                    raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
                if requester != token.owner and requester not in token.renewers:
                    raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
                after = decide(token)
                with _asked_for():
                    if await self._replaced(token_id, after, version):
                        break
        until_ms = self._clock.now_ms() if after is None else after.expires_ms
        log.info("delegation token %s of %s expires at %d, says %s", token_id, token.owner, until_ms, requester)
        return until_ms

    async def _found(self, token_id: str) -> tuple[DelegationToken | None, int]:
        path = DelegationToken.path(token_id)
        try:
            data, stat = await self._store.get(path)
        except NoNode:
            return None, _NEVER
        return readable(path, partial(DelegationToken.decode, data)), stat.version

    async def _replaced(self, token_id: str, after: DelegationToken | None, version: int) -> bool:
        """False if somebody else was quicker."""
        path = DelegationToken.path(token_id)
        try:
            await self._write(token_id, Delete(path, version) if after is None else Set(path, after.encode(), version))
        except (BadVersion, NoNode):
            return False
        self._keep(token_id, after)
        return True

    async def _write(self, token_id: str, write: Operation) -> None:
        note = Create(DelegationTokenChange.PREFIX, DelegationTokenChange.encode(token_id), sequential=True)
        try:
            await self._store.multi([write, note])
        except MultiFailed as error:
            raise error.cause from None

    def _refuse_expired(self, token: DelegationToken) -> None:
        if self._has_expired(token):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)

    def _has_expired(self, token: DelegationToken) -> bool:
        return min(token.max_ms, token.expires_ms) < self._clock.now_ms()

    # -- expired ones ----------------------------------------------------------------------------------------------

    async def _sweep_now_and_then(self) -> None:
        async def sweep() -> None:
            await until_answered(self.sweep, _SWEEPING, self._clock, self._timers)

        await every(lambda: self._settings.sweep_ms, "the sweep of delegation tokens", sweep, self._clock, self._timers)

    async def sweep(self) -> None:
        """Removes what has expired, as every broker does; others may ask for changes meanwhile. A token that the store
        refuses to remove keeps no other back."""
        for expired in list(filter(self._has_expired, self._tokens.values())):
            try:
                await self._remove_expired(expired.token_id)
            except Refused as error:
                log.error("cannot %s, and try again later: %s", _SWEEPING, error)

    async def _remove_expired(self, token_id: str) -> None:
        async with self._reading:
            token, version = await self._found(token_id)
            if token is not None and self._has_expired(token) and await self._replaced(token_id, None, version):
                log.info("delegation token %s of %s has expired", token_id, token.owner)

    # -- the store -------------------------------------------------------------------------------------------------

    async def catch_up(self) -> None:
        """Takes in all changes written before this call."""
        async with self._reading:
            await self._notes.take(self._read_again)

    async def _read_again(self, notes: list[Note]) -> None:
        named = [
            readable(path, partial(DelegationTokenChange.decode, data)) for path, data in notes if data is not None
        ]
        await self._read(dict.fromkeys(token_id for token_id in named if token_id is not None))

    async def _read_all(self) -> None:
        last = await self._notes.newest()
        there = await self._store.children(_PARENT)
        await self._read({**self._tokens, **dict.fromkeys(there)})
        self._notes.skip(last)

    async def _read(self, token_ids: Iterable[str]) -> None:
        wanted = list(token_ids)
        nodes = await self._store.get_many([DelegationToken.path(token_id) for token_id in wanted])
        for token_id, node in zip(wanted, nodes, strict=True):
            decode = partial(DelegationToken.decode, node[0]) if node is not None else lambda: None
            self._keep(token_id, readable(DelegationToken.path(token_id), decode))

    def _keep(self, token_id: str, token: DelegationToken | None) -> None:
        self._disown(token_id)
        if token is not None:
            self._tokens[token_id] = token
            self._owned.setdefault(token.owner, {})[token_id] = _of_renewers(token)
            self._ids[self.secret(token_id)] = token_id
            self._watch(token_id)
        elif self._tokens.pop(token_id, None) is not None:
            del self._ids[self.secret(token_id)]
            self._credentials.pop(token_id, None)
            self._forget_end(token_id)
            notify_all(self.on_end, token_id)

    def _disown(self, token_id: str) -> None:
        token = self._tokens.get(token_id)
        if token is not None:
            owned = self._owned[token.owner]
            del owned[token_id]
            if not owned:
                del self._owned[token.owner]

    def _watch(self, token_id: str) -> None:
        """Until it expires, which may be sooner than it was. By then the wall clock may have been set."""
        self._forget_end(token_id)
        token = self._tokens[token_id]
        if self._has_expired(token):
            notify_all(self.on_end, token_id)
        else:
            left_ms = min(token.max_ms, token.expires_ms) + 1 - self._clock.now_ms()
            self._ends[token_id] = self._timers.at(self._clock.monotonic_ms() + left_ms, partial(self._watch, token_id))

    def _forget_end(self, token_id: str) -> None:
        timer = self._ends.pop(token_id, None)
        if timer is not None:
            timer.cancel()


def _of_renewers(token: DelegationToken) -> int:
    """Characters."""
    return sum(map(len, token.renewers))


@contextmanager
def _asked_for() -> Iterator[None]:
    """Whoever has asked for a change is told that the store is out of reach, or refuses it; what this broker does by
    itself it tries again."""
    try:
        yield
    except MetaError as error:
        raise storage_refused(error) from error
