"""Catalogs of Iceberg before Spark starts: there, away, or refusing."""

from __future__ import annotations

import json
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from kafkad_etl.driver.sinks.lake.iceberg import session_settings
from kafkad_etl.errors import EtlExit
from kafkad_etl.facts import sink_text
from kafkad_etl.planning.places import faults
from tests.spark.jobs import job

TOKEN = {"Authorization": "Bearer t"}


class Server(ThreadingHTTPServer):
    """Answers /v1/config with `status` and `body`, if the request has these headers; gives out the token t."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        self.status = 200
        self.body: Any = {"defaults": {}, "overrides": {}}
        self.wanted: dict[str, str] = {}
        self.asked: list[str] = []
        self.moved_to = ""
        """The URL that every question is sent on to; empty: none."""
        self.headers: list[dict[str, str]] = []
        """Of the questions that came."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/catalog"


class _Answering(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self.server.headers.append(dict(self.headers))
        if self.server.moved_to:
            self._answer(302, {})
        elif any(self.headers.get(name) != value for name, value in self.server.wanted.items()):
            self._answer(401, {"error": {"message": "who are you?", "type": "NotAuthorizedException", "code": 401}})
        else:
            self._answer(self.server.status, self.server.body)

    def do_POST(self) -> None:
        self.server.asked.append(self.path)
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        if (form["client_id"], form["client_secret"], form["scope"]) == (["me"], ["s:1"], ["catalog"]):
            self._answer(200, {"access_token": "t", "token_type": "Bearer"})
        else:
            self._answer(401, {"error": "invalid_client", "error_description": "no such client"})

    def _answer(self, status: int, body: Any) -> None:
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        if self.server.moved_to:
            self.send_header("Location", self.server.moved_to)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *words: object) -> None:
        """Says nothing."""


@contextmanager
def running() -> Iterator[Server]:
    with Server() as found:
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield found
        finally:
            found.shutdown()
            thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as found:
        yield found


def sink(path: str = "", **catalog: Any) -> dict[str, Any]:
    return {"type": "iceberg", "path": path, "iceberg": {"table": "shop.orders", "catalog": catalog}}


def told(path: str = "", **catalog: Any) -> list[str]:
    begin = time.monotonic()
    found = list(faults(job(sink=sink(path, **catalog))))
    assert time.monotonic() - begin < 5
    assert {error.exit_code for error in found} <= {EtlExit.CLUSTER}
    return ["; ".join((error.what, *error.hints)) for error in found]


def test_a_server_is_asked_with_the_login_that_spark_will_use(server: Server) -> None:
    rest = {"type": "rest", "url": server.url}
    assert told(**rest) == []
    assert told(**rest, warehouse="a b") == []
    assert server.asked[-1] == "/catalog/v1/config?warehouse=a+b"
    server.wanted = TOKEN
    assert told(**rest, token="t") == []
    assert told(**rest, credential="me:s:1") == []
    assert server.asked[-2:] == ["/catalog/v1/oauth/tokens", "/catalog/v1/config"]
    tokens = server.url.replace("catalog", "other")
    assert told(**rest, credential="me:s:1", options={"oauth2-server-uri": tokens}) == []
    assert server.asked[-2:] == ["/other", "/catalog/v1/config"]
    server.wanted = {"Authorization": "Basic bWU6cw==", "X-Realm": "shop"}
    assert told(**rest, user="me", password="s", options={"header.X-Realm": "shop"}) == []


def test_a_login_is_not_sent_on_to_another_server(server: Server) -> None:
    with running() as other:
        server.moved_to = f"{other.url}/v1/config"
        secret = {"header.X-Api-Key": "secret"}
        assert told(type="rest", url=server.url, token="t", options=secret) == []
        [headers] = other.headers
        assert headers.keys().isdisjoint({"Authorization", "X-Api-Key", "X-api-key"})
        assert server.headers[0]["Authorization"] == "Bearer t"


def test_a_login_that_is_refused(server: Server) -> None:
    server.wanted = TOKEN
    rest = {"type": "rest", "url": server.url}
    denied = f"the catalog {server.url} denies access: 401 Unauthorized: "
    key = "sink.iceberg.catalog"
    hint = "give a `token`, a `credential` or a `user`"
    assert told(**rest) == [f"{key}.url: {denied}who are you?; {hint}"]
    assert told(**rest, token="x") == [f"{key}.token: {denied}who are you?; check {key}.token"]
    assert told(**rest, credential="x:y") == [f"{key}.credential: {denied}no such client; check {key}.credential"]
    assert told(**rest, options={"rest.auth.type": "sigv4"}) == [], "that is for Iceberg to try"


def test_a_server_that_is_something_else(server: Server) -> None:
    rest = {"type": "rest", "url": server.url}
    server.body = {"error": {"message": "Unknown warehouse: w", "type": "NotFoundException", "code": 404}}
    server.status = 404
    text = f"the catalog {server.url} has no warehouse w: 404 Not Found: Unknown warehouse: w"
    assert told(**rest, warehouse="w") == [f"sink.iceberg.catalog.warehouse: {text}"]
    other = f"sink.iceberg.catalog.url: {server.url} does not answer like a catalog of Iceberg: "
    hint = "; the URL is what comes before /v1/config"
    server.body = b"<html>"
    assert told(**rest) == [f"{other}404 Not Found{hint}"]
    server.status = 200
    assert told(**rest) == [f"{other}it is not JSON{hint}"]
    server.status, server.body = 500, b""
    assert told(**rest) == [f"{other}500 Internal Server Error{hint}"]


def test_a_server_that_is_away() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    (text,) = told(type="rest", url=f"{url}/")
    assert text.startswith(f"sink.iceberg.catalog.url: the catalog {url} is not responding: ")
    assert "Connection refused" in text


def test_databases(tmp_path: Path) -> None:
    file = tmp_path / "catalog.db"

    def of(url: str) -> list[str]:
        return told(str(tmp_path / "lake"), type="jdbc", url=url)

    key = "sink.iceberg.catalog.url"
    assert of(f"jdbc:sqlite:{file}") == [], "Iceberg makes it"
    sqlite3.connect(file).close()
    assert of(f"jdbc:sqlite:file:{file}?busy_timeout=5") == []
    file.write_bytes(b"not a database, but a text that is longer than a header")
    assert of(f"jdbc:sqlite:{file}") == [f"{key}: the catalog {file} cannot be read: file is not a database"]
    missing = tmp_path / "a" / "b.db"
    text = f"the catalog {missing} cannot be made: there is no directory {missing.parent}"
    assert of(f"jdbc:sqlite:{missing}") == [f"{key}: {text}"]
    assert "keeps no tables for the next run" in of("jdbc:sqlite::memory:")[0]
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert of(f"jdbc:postgresql://127.0.0.1:{port}/shop") == []
    away = f"{key}: the catalog's database is not responding at 127.0.0.1:{port}: Connection refused"
    assert of(f"jdbc:postgresql://127.0.0.1:{port}/shop") == [away]


def test_what_spark_is_told() -> None:
    def told(path: str = "", **catalog: Any) -> dict[str, str]:
        settings = session_settings(job(sink=sink(path, **catalog)).sink)
        prefix = "spark.sql.catalog.lake"
        assert settings.pop(prefix) == "org.apache.iceberg.spark.SparkCatalog"
        assert settings.pop(f"{prefix}.cache-enabled") == "false"
        return {name.removeprefix(f"{prefix}."): value for name, value in settings.items()}

    assert told("/a") == {"type": "hadoop", "warehouse": "/a"}
    url = "jdbc:postgresql://db/shop"
    login = {"jdbc.user": "u", "jdbc.password": "p"}
    assert told("/a", type="jdbc", url=url, user="u", password="p") == {
        "type": "jdbc",
        "warehouse": "/a",
        "uri": url,
        **login,
    }
    rest = {"type": "rest", "uri": "https://c"}
    basic = {"rest.auth.type": "basic", "rest.auth.basic.username": "u", "rest.auth.basic.password": "p"}
    assert told(type="rest", url="https://c", user="u", password="p") == rest | basic
    assert told(type="rest", url="https://c", token="t", warehouse="w", options={"scope": "all"}) == rest | {
        "token": "t",
        "warehouse": "w",
        "scope": "all",
    }


def test_a_table_is_named_by_its_catalog_without_secrets() -> None:
    assert sink_text(job(sink=sink("/a"))) == "iceberg table shop.orders in /a"
    url = "jdbc:postgresql://db/shop?password=p"
    text = "iceberg table shop.orders in catalog lake of jdbc:postgresql://db/shop"
    assert sink_text(job(sink=sink("/a", type="jdbc", url=url))) == text
    rest = sink(type="rest", url="https://c", warehouse="w", token="t")
    assert sink_text(job(sink=rest)) == "iceberg table shop.orders in warehouse w of https://c"
