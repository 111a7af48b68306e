"""Who this broker is to the other brokers of its cluster, as far as its own settings tell."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from kafkad.config import Config
from kafkad.config.listeners import ENCRYPTED
from kafkad.security.authorizer import ANONYMOUS, Principal
from kafkad.security.gssapi import GSSAPI, service
from kafkad.security.oauthbearer import OAUTHBEARER


def own_users(config: Config) -> dict[str, Principal]:
    """By the listeners of other brokers that it uses. Without those where it cannot be told: a token of an issuer says
    it, or keys or a login cannot be used."""
    listeners = dict.fromkeys((config.inter_broker_listener, config.control_plane_listener))
    found: dict[str, Principal] = {}
    for listener in filter(None, listeners):
        with suppress(ValueError):
            user = _user_at(config, listener)
            if user is not None:
                found[listener] = user
    return found


def without_rights(config: Config) -> Iterator[str]:
    """For `--check`, which knows no ACLs: a warning for each of these users that is not among the super users, unless
    none is needed where there are no ACLs."""
    if not (config.has_others and config.str("authorizer.class.name")):
        return
    if config.str("allow.everyone.if.no.acl.found").lower() == "true":
        return
    for listener, user in own_users(config).items():
        if str(user) not in config.super_users:
            yield (
                f"brokers come to the listener {listener} as {user}, who is not in super.users: without a right to "
                f"ClusterAction none of them is answered, and none gets ready; {remedy(user)}"
            )


def remedy(user: Principal) -> str:
    """What to do about one without the right to ClusterAction. A super user ANONYMOUS is everybody without a login."""
    if user == ANONYMOUS:
        return (
            "let inter.broker.listener.name be one with certificates (ssl.client.auth) or a login, or put "
            f"{user} into super.users if none but brokers come without a login"
        )
    return f"put {user} into super.users"


def _user_at(config: Config, listener: str) -> Principal | None:
    protocol = next((each.protocol for each in config.listeners if each.listener == listener), None)
    if protocol is None:
        return None
    if not protocol.startswith("SASL_"):
        return _of_certificate(config, listener) if protocol in ENCRYPTED else ANONYMOUS
    mechanism = config.str("sasl.mechanism.inter.broker.protocol")
    if mechanism == OAUTHBEARER:
        return None
    if mechanism == GSSAPI:
        own = service(config, listener)
        return Principal("User", own.names.user_of(own.principal))
    module = config.jaas(listener, mechanism)
    return None if module is None or module.username is None else Principal("User", module.username)


def _of_certificate(config: Config, listener: str) -> Principal | None:
    """That which the broker shows, where it is asked for one."""
    from kafkad.security.tls_contexts import Material, users_of
    from kafkad.security.tls_settings import TlsSettings

    settings = TlsSettings.of(config, listener)
    if settings.client_auth == "none":
        return ANONYMOUS
    chain = Material.read(settings).chain
    return Principal("User", users_of(settings)(chain[0].der)) if chain else None
