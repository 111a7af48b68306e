"""The /health report of a kafkad broker, with what Kafka's protocol has no place for: damage, exposed listeners, a
metadata store that is lost or takes no changes."""

from __future__ import annotations

from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, NamedTuple

from kctl.texts.parsing import whole_number

if TYPE_CHECKING:
    from ssl import SSLContext

_DAMAGED, _EXPOSED, _CUT_OFF = "damaged: ", "exposed: ", "no connection to ZooKeeper"
_REFUSING, _NO_TOPICS = ": changes of metadata are refused", ": no topics are created"
_TIMEOUT_S = 3.0
_ANY = ("", "0.0.0.0", "::", "[::]")


class HttpListener(NamedTuple):
    """Where a kafkad broker answers HTTP."""

    host: str
    port: int
    over_tls: bool = False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.over_tls else 'http'}://{host}:{self.port}"


def listener_of(setting: str | None, broker_host: str) -> HttpListener | None:
    """The address to ask, from the setting http.listener; the broker's own host if it listens on all interfaces."""
    text = (setting or "").rstrip("/")
    host, colon, port = text.removeprefix("https://").removeprefix("http://").rpartition(":")
    number = whole_number(port, 65535)
    if not colon or number is None:
        return None
    return HttpListener(broker_host if host in _ANY else host.strip("[]"), number, text.startswith("https://"))


class HealthReport(NamedTuple):
    """What a kafkad broker reports of itself."""

    damaged: tuple[str, ...]
    """Places in logs."""
    exposed: tuple[str, ...]
    """Listeners without TLS that other machines can reach."""
    cut_off: str | None = None
    """Why it has no connection to ZooKeeper; None while it has one, or needs none."""
    refusing: str | None = None
    """Why it takes no changes of the metadata that it keeps itself, or no new topics; None while it does."""

    @property
    def takes_no_changes(self) -> bool:
        """True where even the topics that there are cannot be changed."""
        return self.refusing is not None and _REFUSING in self.refusing


def health_report(listener: HttpListener, tls: Callable[[], SSLContext]) -> HealthReport:
    """Asks the broker. OSError when it cannot be reached, or not be trusted by `tls`."""
    connection = _connection(listener, tls)
    try:
        connection.request("GET", "/health")
        lines = connection.getresponse().read().decode("utf-8", "replace").split("\n")
    except HTTPException as error:
        raise OSError(f"no HTTP there: {error!r}") from error
    finally:
        connection.close()
    damaged, exposed = (
        tuple(line.removeprefix(kind) for line in lines if line.startswith(kind)) for kind in (_DAMAGED, _EXPOSED)
    )
    return HealthReport(
        damaged,
        exposed,
        cut_off=next((line for line in lines if line.startswith(_CUT_OFF)), None),
        refusing=next((line for line in lines if _REFUSING in line or _NO_TOPICS in line), None),
    )


def _connection(listener: HttpListener, tls: Callable[[], SSLContext]) -> HTTPConnection:
    if not listener.over_tls:
        return HTTPConnection(listener.host, listener.port, timeout=_TIMEOUT_S)
    from http.client import HTTPSConnection

    return HTTPSConnection(listener.host, listener.port, timeout=_TIMEOUT_S, context=tls())
