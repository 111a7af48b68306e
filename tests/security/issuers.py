"""An issuer of tokens on this machine, over HTTPS."""

from __future__ import annotations

import json
import threading
import time
from base64 import b64encode
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs

from tests.certificates import Authority, server_context
from tests.security.tokens import jwk, key_set, rsa_key, signed

CLIENT, SECRET = "kafka brokers", "s%cret: yes"


class Issuer:
    """Publishes `keys`, and gives tokens to CLIENT, whose SECRET it knows; a context manager."""

    def __init__(self, directory: Path, *, key: int = 1, name: str = "issuer", lifetime_s: float = 60) -> None:
        authority = Authority()
        self.ca = authority.write(directory / f"{name}-ca.pem")
        self.keys = [jwk(rsa_key(key), f"k{key}")]
        self.key = key
        self.name = name
        self.asked = 0
        self.given = 0
        """Tokens."""
        self.answers = threading.Event()
        """Clear: whoever asks has to wait, and gets a byte now and then."""
        self.answers.set()
        self.wanted: list[dict[str, list[str]]] = []
        """The forms in which tokens were asked for."""
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked += 1
                self._answer(200, key_set(*issuer.keys))

            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                issuer.wanted.append(parse_qs(form))
                user = b64encode(b"kafka+brokers:s%25cret%3A+yes").decode()
                if self.headers["Authorization"] != f"Basic {user}":
                    self._answer(401, b"")
                    return
                issuer.given += 1
                self._answer(
                    200,
                    json.dumps({"access_token": issuer.token("broker", lifetime_s), "expires_in": lifetime_s}).encode(),
                )

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.flush_headers()
                with suppress(OSError):  # who asked has gone
                    self.wfile.write(b"Slow: ")
                    while not issuer.answers.wait(0.2):
                        self.wfile.write(b".")
                    self.wfile.write(b"\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

            def log_message(self, *_: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        context = server_context(authority.issue("localhost"), directory)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"https://localhost:{self.server.server_port}/keys"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def token(self, user: str, seconds: float = 60, **claims: Any) -> str:
        now = int(time.time())
        times = {"iat": now, "exp": time.time() + seconds}
        return signed(rsa_key(self.key), kid=f"k{self.key}", **{"sub": user, "iss": self.name, **times, **claims})

    def close(self) -> None:
        self.answers.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
