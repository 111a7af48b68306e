"""Who may do what on this broker, by the ACLs in the metadata store. Imported only where there is an authorizer."""

from __future__ import annotations

from typing import NamedTuple

from kafkad.clock import Clock
from kafkad.cluster.acls import Acls
from kafkad.config import Config
from kafkad.meta.store import MetaStore
from kafkad.security.access_log import AccessLog
from kafkad.security.acl import AclAuthorizer
from kafkad.timers import Timers


class Rights(NamedTuple):
    authorizer: AclAuthorizer
    acls: Acls


async def load_rights(config: Config, store: MetaStore, clock: Clock, timers: Timers) -> Rights:
    """Reads all ACLs, and follows them from then on."""
    style = config.str("kafkad.audit.format")
    authorizer = AclAuthorizer(
        config.super_users,
        config.str("allow.everyone.if.no.acl.found") == "true",
        AccessLog(clock.monotonic_ms, timers.at, style),
    )
    acls = Acls(store, authorizer, clock, timers)
    await acls.start()
    return Rights(authorizer, acls)
