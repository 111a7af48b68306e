"""A stand-in for a schema registry: the part of Confluent's documented HTTP API that jobs use, in memory.

Compatibility is judged by one rule only: a field that a new version adds to a record of Avro needs a default.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext, SSLError
from typing import Any, NamedTuple
from urllib.parse import unquote


class Stored(NamedTuple):
    id: int
    schema: str
    kind: str
    references: list[dict[str, Any]]


class FakeRegistry(ThreadingHTTPServer):
    def __init__(self, tls: SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.subjects: dict[str, list[Stored]] = {}
        self.login = ""
        """The Authorization header that is expected; empty: none is."""
        self.status = 0
        """A status that every request is answered with; 0: none."""
        self.moved_to = ""
        """The URL of the registry that every request is sent on to; empty: none."""
        self.asked: list[str] = []
        self.logins: list[str | None] = []
        """The Authorization headers that came."""
        self._scheme = "https" if tls else "http"
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    @property
    def url(self) -> str:
        return f"{self._scheme}://localhost:{self.server_port}"

    def add(self, subject: str, schema: Any, kind: str = "AVRO", references: list[dict[str, Any]] | None = None) -> int:
        """Registers a schema, without any check of compatibility. Returns its id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        every = [each for stored in self.subjects.values() for each in stored]
        number = next((each.id for each in every if (each.schema, each.kind) == (text, kind)), len(every) + 1)
        self.subjects.setdefault(subject, []).append(Stored(number, text, kind, references or []))
        return number

    def by_id(self, number: int) -> Stored | None:
        return next((each for stored in self.subjects.values() for each in stored if each.id == number), None)

    def reasons(self, subject: str, schema: str) -> list[str]:
        stored = self.subjects.get(subject)
        if stored and stored[-1].kind == "PROTOBUF":
            return []
        before = {field["name"] for field in json.loads(stored[-1].schema).get("fields", ())} if stored else set()
        added = (
            [field for field in json.loads(schema).get("fields", ()) if field["name"] not in before] if stored else []
        )
        return [f"field {field['name']} has no default" for field in added if "default" not in field]


class Answering(BaseHTTPRequestHandler):
    server: FakeRegistry

    def do_GET(self) -> None:
        self._answer(None)

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _answer(self, body: Any) -> None:
        self.server.asked.append(f"{self.command} {self.path}")
        self.server.logins.append(self.headers.get("Authorization"))
        status, answer = (302, {}) if self.server.moved_to else self._answered(body)
        data = json.dumps(answer).encode()
        self.send_response(status)
        if self.server.moved_to:
            self.send_header("Location", self.server.moved_to + self.path)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _answered(self, body: Any) -> tuple[int, Any]:
        registry = self.server
        if registry.status:
            return registry.status, {"error_code": registry.status, "message": "as told"}
        if registry.login and self.headers.get("Authorization") != registry.login:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        path = self.path.partition("?")[0]
        for pattern, answer in ROUTES:
            if (found := re.fullmatch(pattern, f"{self.command} {path}")) is not None:
                answered: tuple[int, Any] = answer(registry, *map(unquote, found.groups()), *([body] if body else ()))
                return answered
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def log_message(self, *arguments: object) -> None: ...

    def handle(self) -> None:
        with suppress(SSLError):  # a client that does not trust this server, or is not trusted, has been told
            super().handle()


def _shown(subject: str, version: int, stored: Stored) -> tuple[int, Any]:
    shown = {"subject": subject, "version": version, "id": stored.id, "schema": stored.schema}
    return 200, shown | _further(stored)


def _further(stored: Stored) -> dict[str, Any]:
    """What is left out for plain Avro."""
    kind = {"schemaType": stored.kind} if stored.kind != "AVRO" else {}
    return kind | ({"references": stored.references} if stored.references else {})


def _versions(registry: FakeRegistry, subject: str) -> tuple[int, Any]:
    stored = registry.subjects.get(subject)
    return (200, list(range(1, len(stored) + 1))) if stored else (404, {"error_code": 40401})


def _version(registry: FakeRegistry, subject: str, version: str) -> tuple[int, Any]:
    stored = registry.subjects.get(subject, [])
    number = len(stored) if version == "latest" else int(version)
    return _shown(subject, number, stored[number - 1]) if 0 < number <= len(stored) else (404, {"error_code": 40402})


def _id(registry: FakeRegistry, number: str) -> tuple[int, Any]:
    stored = registry.by_id(int(number))
    return (200, {"schema": stored.schema} | _further(stored)) if stored else (404, {"error_code": 40403})


def _find(registry: FakeRegistry, subject: str, body: Any) -> tuple[int, Any]:
    for number, stored in enumerate(registry.subjects.get(subject, []), 1):
        if _alike(stored.schema, body["schema"]):
            return _shown(subject, number, stored)
    return 404, {"error_code": 40403}


def _alike(one: str, other: str) -> bool:
    try:
        return bool(json.loads(one) == json.loads(other))
    except ValueError:  # Protobuf is no JSON
        return one == other


def _compatibility(registry: FakeRegistry, subject: str, body: Any) -> tuple[int, Any]:
    if subject not in registry.subjects:
        return 404, {"error_code": 40401}
    reasons = registry.reasons(subject, body["schema"])
    return 200, {"is_compatible": not reasons, "messages": reasons}


def _register(registry: FakeRegistry, subject: str, body: Any) -> tuple[int, Any]:
    status, found = _find(registry, subject, body)
    if status == 200:
        return 200, {"id": found["id"]}
    if reasons := registry.reasons(subject, body["schema"]):
        return 409, {"error_code": 409, "message": f"incompatible: {reasons[0]}"}
    return 200, {"id": registry.add(subject, body["schema"], body.get("schemaType", "AVRO"))}


ROUTES = (
    (r"GET /subjects/([^/]+)/versions", _versions),
    (r"GET /subjects/([^/]+)/versions/(\d+|latest)", _version),
    (r"GET /schemas/ids/(\d+)", _id),
    (r"POST /subjects/([^/]+)", _find),
    (r"POST /subjects/([^/]+)/versions", _register),
    (r"POST /compatibility/subjects/([^/]+)/versions/latest", _compatibility),
)


@contextmanager
def running(tls: SSLContext | None = None) -> Iterator[FakeRegistry]:
    with FakeRegistry(tls) as registry:
        thread = threading.Thread(target=registry.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield registry
        finally:
            registry.shutdown()
            thread.join()
