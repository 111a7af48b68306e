"""How a broker reaches ZooKeeper: by TLS, as whom it logs in, and whether its nodes are protected by ACLs."""

from __future__ import annotations

import ssl
from collections.abc import Callable

from kafkad.config import Config, ZooKeeperAddress
from kafkad.meta.digest_login import ZooKeeperLogin
from kafkad.meta.kazoo_session import ZooKeeperSettings


def zookeeper_settings(config: Config, address: ZooKeeperAddress) -> ZooKeeperSettings:
    """Raises ValueError for keys that cannot be used."""
    jaas = config.zookeeper_login
    return ZooKeeperSettings(
        address.servers,
        address.root,
        config.int("zookeeper.session.timeout.ms"),
        config.int("zookeeper.max.in.flight.requests"),
        tls=_contexts(config),
        login=ZooKeeperLogin(jaas.username or "", jaas.password or "") if jaas is not None else None,
        protects=config.bool("zookeeper.set.acl"),
    )


def _contexts(config: Config) -> Callable[[], ssl.SSLContext] | None:
    if not config.bool("zookeeper.ssl.client.enable"):
        return None
    from kafkad.broker.zookeeper_tls import ZooKeeperContexts

    return ZooKeeperContexts(config)
