"""The logins that a listener offers: its mechanisms with their users, and its limits."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import partial
from heapq import nlargest
from types import MappingProxyType
from typing import Final, NamedTuple

from kafkad.config import Config
from kafkad.security.gssapi import GSSAPI, Gssapi, SeenLogins, service
from kafkad.security.mechanism import Begin, Mechanisms
from kafkad.security.oauth_token import Verify
from kafkad.security.oauthbearer import OAUTHBEARER, OAuthBearer
from kafkad.security.plain import Plain
from kafkad.security.scram import (
    HASHES,
    MadeUp,
    ScramAccount,
    ScramCredential,
    ScramServer,
    Shape,
    new_nonce,
)

log = logging.getLogger(__name__)

TokenAccount = Callable[[str, str], ScramAccount | None]
"""From a mechanism and the id of a delegation token."""
PlainUsers = Callable[[], Mapping[str, str]]
"""Passwords by name, as they are in force now."""
VerifyAt = Callable[[Config, str], Callable[[], Verify | None]]
"""How tokens of OAUTHBEARER are verified at a listener: None while its issuer is asked for keys for the first time."""
_NO_USERS: Final[Mapping[str, str]] = MappingProxyType({})
_MOST_SHAPES: Final = 32
"""Each login looks at all of them."""


class ScramUsers:
    """Credentials by user and mechanism, as they stand in the metadata store; those of delegation tokens apart."""

    def __init__(self, token_account: TokenAccount = lambda mechanism, token_id: None) -> None:
        self._token_account = token_account
        self._credentials: dict[str, dict[str, ScramCredential]] = {}
        self._shapes: dict[str, Counter[Shape]] = {mechanism: Counter() for mechanism in HASHES}
        """How many users have them, by mechanism."""
        self._usual: dict[str, list[tuple[Shape, int]]] = {}
        """The most usual of them; of a mechanism only once they have been asked for since the last change."""

    def changed(self, user: str, overrides: Mapping[str, str]) -> bool:
        """`overrides` are all that is set for this user from now on. Whether there is a mechanism that it can no longer
        log in with."""
        found: dict[str, ScramCredential] = {}
        for mechanism in HASHES.keys() & overrides.keys():
            try:
                found[mechanism] = ScramCredential.parse(overrides[mechanism])
            except ValueError as error:
                log.error("user %r cannot log in with %s: in /config/users: %s", user, mechanism, error)
        before = self._credentials.pop(user, {})
        for mechanism, credential in before.items():
            self._count(mechanism, credential, -1)
        for mechanism, credential in found.items():
            self._count(mechanism, credential, 1)
        if found:
            self._credentials[user] = found
        return not before.keys() <= found.keys()

    def find(self, mechanism: str, user: str) -> ScramCredential | None:
        return self._credentials.get(user, {}).get(mechanism)

    def shapes(self, mechanism: str) -> list[tuple[Shape, int]]:
        """The most usual ones of the users' credentials, each with how many have it."""
        usual = self._usual.get(mechanism)
        if usual is None:
            counted = self._shapes[mechanism].items()
            usual = self._usual[mechanism] = nlargest(_MOST_SHAPES, counted, key=lambda each: each[::-1])
        return usual

    def _count(self, mechanism: str, credential: ScramCredential, users: int) -> None:
        shape, counted = Shape.of(credential), self._shapes[mechanism]
        counted[shape] += users
        if not counted[shape]:
            del counted[shape]
        self._usual.pop(mechanism, None)

    def account(self, mechanism: str, name: str, by_token: bool) -> ScramAccount | None:
        if by_token:
            return self._token_account(mechanism, name)
        credential = self.find(mechanism, name)
        return None if credential is None else ScramAccount(credential, name)


class Offer(NamedTuple):
    """The logins of one listener, by the settings in force."""

    mechanisms: Mechanisms
    lifetimes_ms: Mapping[str, int]
    """The longest session by mechanism, 0 for any."""
    largest_frame: int
    failure_delay_ms: int
    plain_users: Mapping[str, str]

    @property
    def enabled(self) -> Collection[str]:
        """The mechanisms of the settings, with those that cannot be had."""
        return self.lifetimes_ms.keys()


def offer(
    config: Config,
    listener: str,
    secret: bytes,
    scram: ScramUsers,
    plain_users: PlainUsers,
    verify_at: VerifyAt,
    seen: SeenLogins,
) -> Offer:
    """By `secret`, which all brokers of a cluster share, users are made up who do not exist. A login that has begun may
    outlast this offer: its password is looked up in `plain_users`. A mechanism that cannot be had is left out, so that
    all else is by the new settings."""
    enabled = config.mechanisms(listener)
    users = _NO_USERS
    mechanisms: dict[str, Begin] = {}
    for mechanism in enabled:
        try:
            if mechanism == "PLAIN":
                module = config.jaas(listener, mechanism)
                users = _NO_USERS if module is None else module.users
                mechanisms[mechanism] = partial(Plain, plain_users)
            elif mechanism == OAUTHBEARER:
                mechanisms[mechanism] = partial(_bearer, verify_at(config, listener))
            elif mechanism == GSSAPI:
                mechanisms[mechanism] = _kerberos(config, listener, seen)
            else:
                find = partial(scram.account, mechanism)
                made_up = MadeUp(secret, partial(scram.shapes, mechanism))
                mechanisms[mechanism] = partial(ScramServer, mechanism, find, made_up, new_nonce)
        except (ValueError, ImportError) as error:
            log.error("nobody can log in with %s at listener %s: %s", mechanism, listener, error)
    return Offer(
        mechanisms,
        {each: max(config.int_for_mechanism(listener, each, "connections.max.reauth.ms"), 0) for each in enabled},
        config.int_for_listener(listener, "sasl.server.max.receive.size"),
        config.int("connection.failed.authentication.delay.ms"),
        users,
    )


def _bearer(verify: Callable[[], Verify | None]) -> OAuthBearer | None:
    by_keys = verify()
    return None if by_keys is None else OAuthBearer(by_keys)


def _kerberos(config: Config, listener: str, seen: SeenLogins) -> Begin:
    from kafkad.security.kerberos import KerberosAcceptance

    tickets = service(config, listener)
    return partial(Gssapi, partial(KerberosAcceptance, tickets), tickets.names, seen)
