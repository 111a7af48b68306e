from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from kafkad_etl.driver.source.registry import Schemas, http_get
from kafkad_etl.driver.terms import JobFailed
from kafkad_etl.job import Registry

ANSWERS = {
    "/subjects/orders-value/versions": "[1, 2]",
    "/subjects/orders-value/versions/1": '{"id": 4, "schema": "one"}',
    "/subjects/orders-value/versions/2": '{"id": 9, "schema": "two"}',
    "/schemas/ids/30": '{"schema": "other"}',
}


class Answering(BaseHTTPRequestHandler):
    asked: list[tuple[str, str]]

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers.get("Authorization", "")))
        answer = ANSWERS.get(self.path)
        denied = self.headers.get("Authorization") != "Basic dTpwdw=="
        self.send_response(401 if denied else 200 if answer else 404)
        self.end_headers()
        self.wfile.write((answer or "{}").encode())

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def registry() -> Iterator[str]:
    Answering.asked = []
    server = HTTPServer(("127.0.0.1", 0), Answering)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_schemas_of_all_versions_are_known_and_others_are_learnt_once(registry: str) -> None:
    schemas = Schemas(http_get(Registry(url=registry + "/", username="u", password="pw")))
    schemas.learn_subject("orders-value")
    schemas.learn_subject("nobody-value")
    assert schemas.known == {4: "one", 9: "two"}
    assert schemas.learn([4, 30, 31])
    assert schemas.known[30] == "other"
    assert not schemas.learn([30, 31])
    assert [path for path, _ in Answering.asked].count("/schemas/ids/30") == 1


def test_a_registry_that_denies_is_not_asked_again_and_one_that_is_away_is(registry: str) -> None:
    with pytest.raises(JobFailed) as denied:
        http_get(Registry(url=registry))("/schemas/ids/30")
    assert not denied.value.failed.retriable and "401" in denied.value.failed.text
    with pytest.raises(JobFailed) as away:
        http_get(Registry(url="http://127.0.0.1:1"))("/schemas/ids/30")
    assert away.value.failed.retriable
