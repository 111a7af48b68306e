"""The /health report of a kafkad broker, with damaged logs in it: Kafka's protocol has no place for that."""

from __future__ import annotations

from http.client import HTTPConnection, HTTPException

_DAMAGED = "damaged: "
_TIMEOUT_S = 3.0
_ANY = ("", "0.0.0.0", "::", "[::]")


def listener_of(setting: str | None, broker_host: str) -> tuple[str, int] | None:
    """The address to ask, from the setting http.listener; the broker's own host if it listens on all interfaces."""
    text = (setting or "").removeprefix("http://").rstrip("/")
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit():
        return None
    return (broker_host if host in _ANY else host.strip("[]")), int(port)


def damage(host: str, port: int) -> list[str]:
    """The damaged places that the broker tells of. OSError when it cannot be asked."""
    connection = HTTPConnection(host, port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", "/health")
        lines = connection.getresponse().read().decode("utf-8", "replace").splitlines()
    except HTTPException as error:
        raise OSError(f"no HTTP there: {error!r}") from error
    finally:
        connection.close()
    return [line.removeprefix(_DAMAGED) for line in lines if line.startswith(_DAMAGED)]
