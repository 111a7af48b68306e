"""What brokers report at /health: over HTTP, and over TLS by the certificates that kctl trusts."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from kctl.doctor.health import HealthReport, HttpListener, health_report, listener_of
from tests.certificates import Authority, client_context, server_context

AUTHORITY = Authority()
LOST = "no connection to ZooKeeper at zk1:2181: connection refused"
FULL = "the disk of /m was full at the last change: changes of metadata are refused until there is room"
ALMOST_FULL = (
    "the disk of /m is full: no topics are created until there is room, nor partitions, delegation tokens or offsets "
    "of version 0; delete records or topics to make it"
)
REPORT = f"running\ndamaged: t-0: cut\n{LOST}\n{FULL}\nexposed: listener A is PLAINTEXT\n"


class Health(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()
        self.wfile.write(self.server.report.encode())  # type: ignore[attr-defined]

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def broker(tls: ssl.SSLContext | None = None, report: str = REPORT) -> Iterator[HttpListener]:
    server = HTTPServer(("127.0.0.1", 0), Health)
    server.report = report  # type: ignore[attr-defined]
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield HttpListener("localhost", server.server_port, tls is not None)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    "setting, listener",
    [
        ("127.0.0.1:9404", "http://127.0.0.1:9404"),
        ("http://:9404/", "http://b1:9404"),
        ("https://0.0.0.0:9404", "https://b1:9404"),
        ("https://[::1]:9404", "https://[::1]:9404"),
        (None, None),
        ("9404", None),
    ],
)
def test_where_a_broker_is_asked(setting: str | None, listener: str | None) -> None:
    found = listener_of(setting, "b1")
    assert (None if found is None else str(found)) == listener


def test_a_report_over_http() -> None:
    with broker() as listener:
        report = health_report(listener, ssl.create_default_context)
    assert report == HealthReport(("t-0: cut",), ("listener A is PLAINTEXT",), LOST, FULL)


def test_a_report_of_a_disk_that_has_no_room_for_topics() -> None:
    with broker(report=f"running\n{ALMOST_FULL}\n") as listener:
        assert health_report(listener, ssl.create_default_context).refusing == ALMOST_FULL


def test_only_a_newline_ends_a_line_of_a_report() -> None:
    with broker(report="no room in /a\u2028exposed: b\n") as listener:
        assert health_report(listener, ssl.create_default_context) == HealthReport((), ())


def test_a_report_over_tls(tmp_path: Path) -> None:
    with broker(server_context(AUTHORITY.issue(names=["localhost"]), tmp_path)) as listener:
        assert health_report(listener, lambda: client_context(AUTHORITY)).damaged == ("t-0: cut",)
        with pytest.raises(OSError, match="certificate verify failed"):
            health_report(listener, lambda: client_context(Authority("another")))
