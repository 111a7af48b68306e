"""Addresses: listeners, as `NAME://host:port` with the security protocol of each name, and those of ZooKeeper."""

from __future__ import annotations

import re
from typing import NamedTuple

from kafkad.model import Endpoint

_LISTENER = re.compile(r"([A-Za-z0-9_.-]+)://\[?([0-9A-Za-z%._:-]*?)\]?:([0-9]+)")
_ZOOKEEPER = re.compile(r"(?:[0-9A-Za-z._-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]+))?")
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
ENCRYPTED = ("SSL", "SASL_SSL")
WILDCARDS = ("0.0.0.0", "::", "0:0:0:0:0:0:0:0")


def protocol_map(pairs: str) -> dict[str, str]:
    """`NAME:PROTOCOL,…`; raises ValueError."""
    protocols: dict[str, str] = {}
    for pair in filter(None, map(str.strip, pairs.split(","))):
        name, _, protocol = pair.partition(":")
        if protocol.strip() not in PROTOCOLS:
            raise ValueError(f"{pair!r} is not NAME:PROTOCOL with one of {', '.join(PROTOCOLS)}")
        protocols[name.strip().upper()] = protocol.strip()
    return protocols


def parse_listeners(text: str, protocols: dict[str, str]) -> tuple[Endpoint, ...]:
    """The endpoints in the order given; names in capitals; an empty host stays empty. Raises ValueError."""
    endpoints: list[Endpoint] = []
    for listener in filter(None, map(str.strip, text.split(","))):
        match = _LISTENER.fullmatch(listener)
        if match is None:
            raise ValueError(f"{listener!r} is not a listener; expected NAME://host:port, as in PLAINTEXT://[::1]:9092")
        name, host, port = match[1].upper(), match[2], int(match[3])
        if port > 65535:
            raise ValueError(f"{listener!r} has a port above 65535")
        if name not in protocols:
            raise ValueError(
                f"No security protocol defined for listener {name}; add it to listener.security.protocol.map"
            )
        if any(endpoint.listener == name for endpoint in endpoints):
            raise ValueError(f"Each listener must have a different name, {name} stands there twice")
        endpoints.append(Endpoint(listener=name, host=host, port=port, protocol=protocols[name]))
    if not endpoints:
        raise ValueError("at least one listener is needed")
    _refuse_shared_addresses(endpoints)
    return tuple(endpoints)


def _refuse_shared_addresses(endpoints: list[Endpoint]) -> None:
    taken: dict[tuple[str, int], str] = {}
    for endpoint in endpoints:
        other = taken.setdefault((endpoint.host, endpoint.port), endpoint.listener)
        if endpoint.port and other != endpoint.listener:
            raise ValueError(f"{other} and {endpoint.listener} have the same address")


class ZooKeeperAddress(NamedTuple):
    """`servers` as host:port,…; `root` is the node below which everything of the cluster is kept, empty for none."""

    servers: str
    root: str


def parse_zookeeper(text: str) -> ZooKeeperAddress:
    """`host:port,…[/path]`. Raises ValueError."""
    servers, slash, root = text.partition("/")
    hosts = [host.strip() for host in servers.split(",")]
    for host in hosts:
        match = _ZOOKEEPER.fullmatch(host)
        if match is None or int(match[1] or 0) > 65535:
            raise ValueError(f"{host!r} is not a server; expected host:port,…[/path], as in zk1:2181,zk2:2181/kafka")
    root = (slash + root.strip()).rstrip("/")
    if "//" in root:
        raise ValueError(f"{root!r} is not a path of ZooKeeper")
    return ZooKeeperAddress(",".join(hosts), root)
