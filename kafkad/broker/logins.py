"""Builds the logins of the listeners that ask for one, from the settings in force and the users in the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kafkad.api.logins import Logins
from kafkad.broker.settings import Settings
from kafkad.clock import Clock
from kafkad.cluster.entities import EntityConfigs
from kafkad.model import Entity
from kafkad.net.connection import Connection
from kafkad.security.gssapi import SeenLogins
from kafkad.security.offer import Offer, ScramUsers, offer

if TYPE_CHECKING:
    from kafkad.broker.issuers import Issuers
    from kafkad.cluster.tokens import DelegationTokens


def logins(
    settings: Settings,
    secret: bytes,
    entities: EntityConfigs,
    connections: Callable[[], list[Connection]],
    clock: Clock,
    issuers: Issuers,
    tokens: DelegationTokens | None,
) -> Logins:
    users = ScramUsers(tokens.account) if tokens is not None else ScramUsers()
    seen = SeenLogins(clock.monotonic_ms)

    def make_offer(listener: str) -> Offer:
        def plain_users() -> Mapping[str, str]:
            return made.offers[listener].plain_users

        with issuers.naming_anew(listener):
            return offer(settings.config, listener, secret, users, plain_users, issuers.verify_at, seen)

    def changed(entity: Entity, overrides: Mapping[str, str]) -> None:
        if isinstance(entity.user, str) and entity.client is None:
            made.user_changed(entity.user, overrides)

    made = Logins(settings.config.login_listeners, make_offer, users, connections, clock)
    for entity, overrides in entities.all.items():
        changed(entity, overrides)
    entities.listen(changed)
    if tokens is not None:
        tokens.on_end.append(made.token_ended)
    issuers.on_asked.append(made.mechanism_ready)
    return made
