"""Who may do what on this broker, by the ACLs in the metadata store. Imported only where there is an authorizer."""

from __future__ import annotations

import logging
from typing import NamedTuple

from kafkad.broker.own_user import own_users, remedy
from kafkad.clock import Clock
from kafkad.cluster.acls import Acls
from kafkad.config import Config
from kafkad.meta.store import MetaStore
from kafkad.security.access_log import AccessLog
from kafkad.security.acl import AclAuthorizer
from kafkad.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from kafkad.timers import Timers

log = logging.getLogger(__name__)


class Rights(NamedTuple):
    authorizer: AclAuthorizer
    acls: Acls

    def tell_of_doubtful(self, config: Config, *, alone: bool) -> None:
        """Logs what an operator can hardly have meant. `config` has the settings in force; `alone`: there can be no
        other broker."""
        if self.authorizer.allow_if_no_acl and next(iter(self.acls), None) is None:
            log.warning(
                "everybody may do everything: allow.everyone.if.no.acl.found is true, and there are no ACLs; add some "
                "(kctl acls add), then take the setting out"
            )
        for listener, user in {} if alone else own_users(config).items():
            identity = self.authorizer.identity(user, "127.0.0.1")
            if not identity.allows(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
                log.warning(
                    "other brokers come over the listener %s as %s, who has no right to ClusterAction, so that none of "
                    "them is answered: %s",
                    *(listener, user, remedy(user)),
                )


async def load_rights(config: Config, store: MetaStore, clock: Clock, timers: Timers) -> Rights:
    """Reads all ACLs, and follows them from then on."""
    style = config.str("kafkad.audit.format")
    authorizer = AclAuthorizer(
        config.super_users,
        config.str("allow.everyone.if.no.acl.found").lower() == "true",
        AccessLog(clock.monotonic_ms, timers.at, style),
    )
    acls = Acls(store, authorizer, clock, timers)
    await acls.start()
    return Rights(authorizer, acls)
