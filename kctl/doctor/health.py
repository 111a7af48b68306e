"""The /health report of a kafkad broker, with what Kafka's protocol has no place for: damage, exposed listeners."""

from __future__ import annotations

from http.client import HTTPConnection, HTTPException
from typing import NamedTuple

_DAMAGED, _EXPOSED = "damaged: ", "exposed: "
_TIMEOUT_S = 3.0
_ANY = ("", "0.0.0.0", "::", "[::]")


def listener_of(setting: str | None, broker_host: str) -> tuple[str, int] | None:
    """The address to ask, from the setting http.listener; the broker's own host if it listens on all interfaces."""
    text = (setting or "").removeprefix("http://").rstrip("/")
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit():
        return None
    return (broker_host if host in _ANY else host.strip("[]")), int(port)


class HealthReport(NamedTuple):
    """What a kafkad broker reports of itself."""

    damaged: tuple[str, ...]
    """Places in logs."""
    exposed: tuple[str, ...]
    """Listeners without TLS that other machines can reach."""


def health_report(host: str, port: int) -> HealthReport:
    """Asks the broker. OSError when it cannot be reached."""
    connection = HTTPConnection(host, port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", "/health")
        lines = connection.getresponse().read().decode("utf-8", "replace").splitlines()
    except HTTPException as error:
        raise OSError(f"no HTTP there: {error!r}") from error
    finally:
        connection.close()
    damaged, exposed = (
        tuple(line.removeprefix(kind) for line in lines if line.startswith(kind)) for kind in (_DAMAGED, _EXPOSED)
    )
    return HealthReport(damaged, exposed)
