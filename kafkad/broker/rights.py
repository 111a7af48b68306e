"""Who may do what on this broker, by the ACLs in the metadata store. Imported only where there is an authorizer."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

from kafkad.clock import Clock
from kafkad.cluster.acls import Acls
from kafkad.config import Config
from kafkad.meta.store import MetaStore
from kafkad.security.access_log import AccessLog
from kafkad.security.acl import AclAuthorizer
from kafkad.security.authorizer import ANONYMOUS, CLUSTER_NAME, Operation, ResourceType
from kafkad.timers import Timers

log = logging.getLogger(__name__)


class Rights(NamedTuple):
    authorizer: AclAuthorizer
    acls: Acls


async def load_rights(config: Config, store: MetaStore, clock: Clock, timers: Timers, *, alone: bool) -> Rights:
    """Reads all ACLs, and follows them from then on. `alone`: there can be no other broker."""
    style = config.str("kafkad.audit.format")
    authorizer = AclAuthorizer(
        config.super_users,
        config.str("allow.everyone.if.no.acl.found").lower() == "true",
        AccessLog(clock.monotonic_ms, timers.at, style),
    )
    acls = Acls(store, authorizer, clock, timers)
    await acls.start()
    rights = Rights(authorizer, acls)
    for problem in _problems(config, rights, alone):
        log.warning("%s", problem)
    return rights


def _problems(config: Config, rights: Rights, alone: bool) -> Iterator[str]:
    """Settings that an operator can hardly have meant."""
    if rights.authorizer.allow_if_no_acl and next(iter(rights.acls), None) is None:
        yield (
            "everybody may do everything: allow.everyone.if.no.acl.found is true, and there are no ACLs; add some "
            "(kctl acls add), then take the setting out"
        )
    if alone:
        return
    listener = config.inter_broker_listener
    protocols = {endpoint.listener: endpoint.protocol for endpoint in config.listeners}
    anonymous = rights.authorizer.identity(ANONYMOUS, "127.0.0.1")
    acts = anonymous.allows(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    if protocols.get(listener) == "PLAINTEXT" and not acts:
        yield (
            f"other brokers come over the listener {listener} as {ANONYMOUS}, who has no right to ClusterAction, so "
            f"that none of them is answered: let inter.broker.listener.name be one with TLS or a login, or put "
            f"{ANONYMOUS} into super.users"
        )
