"""The rates of connections that addresses have in the metadata store, where they may stand under a name."""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from ipaddress import ip_address

from kafkad.model import DEFAULT, Entity
from kafkad.security.quotas.keys import Quota
from kafkad.security.quotas.levels import Overrides, number

log = logging.getLogger(__name__)


def by_address(entities: Mapping[Entity, Overrides]) -> tuple[dict[str, float], float | None]:
    """Rates by address, and that of all others. Names are looked up when quotas change: requests wait for it."""
    addresses: dict[str, float] = {}
    others = None
    for entity, overrides in entities.items():
        rate = number(overrides.get(Quota.CONNECTION))
        if rate is None:
            continue
        if entity.ip is DEFAULT:
            others = rate
        elif isinstance(entity.ip, str):
            addresses |= dict.fromkeys(_resolved(entity.ip), rate)
    return addresses, others


def _resolved(host: str) -> list[str]:
    try:
        return [str(ip_address(host))]
    except ValueError:
        pass
    try:
        return [str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError) as error:
        log.warning("the connection_creation_rate of %s holds for nobody: it has no address: %s", host, error)
        return []
