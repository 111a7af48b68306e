"""Finds listeners without TLS that other machines can reach, and metrics without a token: fine for trying kafkad out,
and warned of until `kafkad.insecure=true` says that they are meant to be so."""

from __future__ import annotations

import re

from kafkad.config.config import Config

_THIS_MACHINE = re.compile(r"localhost\.?|127(\.[0-9]+){1,3}|::1", re.IGNORECASE)
_READABLE = {
    "PLAINTEXT": "anybody who reaches it may do what User:ANONYMOUS may, and all that is sent can be read on the way",
    "SASL_PLAINTEXT": "all that is sent can be read on the way, passwords of PLAIN included",
}


def has_open_metrics(config: Config) -> bool:
    """Whether others than those of this machine may read the metrics, without a token."""
    http = config.http_listener
    return http is not None and not _THIS_MACHINE.fullmatch(http[0]) and not config.value("kafkad.http.token")


def exposed(config: Config) -> list[str]:
    """A warning for each of them; none with `kafkad.insecure=true`."""
    if config.bool("kafkad.insecure"):
        return []
    found = [
        f"listener {endpoint.listener} is {endpoint.protocol} on {endpoint.host or 'every interface'}: "
        f"{_READABLE[endpoint.protocol]}; give it TLS (see docs/security.md), or say kafkad.insecure=true"
        for endpoint in config.listeners
        if endpoint.protocol in _READABLE and not _THIS_MACHINE.fullmatch(endpoint.host)
    ]
    http = config.http_listener
    if http is not None and has_open_metrics(config):
        found.append(
            f"http.listener is on {http[0] or 'every interface'}: anybody who reaches it may read the metrics; set "
            "kafkad.http.token, or say kafkad.insecure=true"
        )
    return found
