"""Finds settings by which a broker runs, and by which it is less safe than whoever set them can have meant it to be."""

from __future__ import annotations

from collections.abc import Iterator

from kafkad.config.config import Config
from kafkad.config.setting import host_check


def doubtful(config: Config) -> list[str]:
    """A warning for each of them, for a configuration that can be used."""
    return [
        *_nobodys_rights(config),
        *_host_of_zookeeper(config),
        *_tokens_for_anything(config),
        *_long_sessions(config),
    ]


def _nobodys_rights(config: Config) -> Iterator[str]:
    """Types of principals are compared letter by letter, and there is one."""
    for principal in config.super_users:
        kind, _, name = principal.partition(":")
        if kind != "User":
            yield f"super.users: {principal} is nobody: every principal is of the type User; write User:{name}"


def _host_of_zookeeper(config: Config) -> Iterator[str]:
    """By Kafka everything but https means that it is not looked at, and empty is the way to say so."""
    setting = "zookeeper.ssl.endpoint.identification.algorithm"
    found = config.str(setting)
    is_used = config.value("zookeeper.connect") and config.bool("zookeeper.ssl.client.enable")
    if is_used and host_check(found) is not None:
        yield (
            f"{setting}={found} means, as in Kafka, that ZooKeeper may show a certificate for any host: leave it out "
            "for https"
        )


def _tokens_for_anything(config: Config) -> Iterator[str]:
    own = "sasl.oauthbearer.expected"
    for listener in config.listeners_with("OAUTHBEARER"):
        url, *expected = (
            config.for_mechanism(listener, "OAUTHBEARER", name)
            for name in ("sasl.oauthbearer.jwks.endpoint.url", f"{own}.audience", f"{own}.issuer")
        )
        if url and not any(expected):
            yield (
                f"listener {listener} takes every token that is signed by a key of {url}, also those for other "
                f"services: set listener.name.{listener.lower()}.{own}.audience"
            )


def _long_sessions(config: Config) -> Iterator[str]:
    """A broker that is cut off is given up after 4/3 of a session, and what lies between two looks."""
    session_ms, lag_ms = config.int("zookeeper.session.timeout.ms"), config.long("replica.lag.time.max.ms")
    given_up_ms = session_ms * 5 // 3
    if config.value("zookeeper.connect") and given_up_ms > lag_ms:
        yield (
            f"zookeeper.session.timeout.ms={session_ms} is more than 0.6 of replica.lag.time.max.ms={lag_ms}: a leader "
            f"that is cut off from the other brokers gives way after up to {given_up_ms} ms, not within the lag time"
        )
