from __future__ import annotations

import base64
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkad_etl.job import Registry
from kafkad_etl.registry import client as client_module
from kafkad_etl.registry.client import Incompatible, RegistryError, SchemaRegistry
from tests.certificates import Authority, server_context
from tests.spark.schema_registry import Answering, FakeRegistry, running

ORDER = {"type": "record", "name": "order", "fields": [{"name": "id", "type": "long"}]}
MORE = ORDER | {"fields": [*ORDER["fields"], {"name": "n", "type": "int", "default": 0}]}
WRONG = ORDER | {"fields": [*ORDER["fields"], {"name": "n", "type": "int"}]}


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with running() as registry:
        yield registry


def client(fake: FakeRegistry, **login: str) -> SchemaRegistry:
    return SchemaRegistry(Registry(url=f"{fake.url}/", **login))


def test_schemas_are_found_by_subject_version_and_id(fake: FakeRegistry) -> None:
    first, second = fake.add("a/b value", ORDER), fake.add("a/b value", MORE)
    registry = client(fake)
    assert registry.versions("a/b value") == [1, 2]
    latest, by_id = registry.latest("a/b value"), registry.by_id(first)
    assert latest is not None and (latest.id, latest.version, latest.kind) == (second, 2, "AVRO")
    assert by_id is not None and '"long"' in by_id.text
    assert (registry.by_id(77), registry.latest("c"), registry.versions("c")) == (None, None, [])


def test_referenced_schemas_come_along_with_theirs(fake: FakeRegistry) -> None:
    fake.add("c", "C")
    fake.add("b", "B", references=[{"name": "n.C", "subject": "c", "version": 1}])
    fake.add("a", "A", references=[{"name": "n.B", "subject": "b", "version": 1}])
    found = client(fake).latest("a")
    assert found is not None and found.references == {"n.B": "B", "n.C": "C"}


def test_a_reference_that_is_not_there_is_an_error(fake: FakeRegistry) -> None:
    fake.add("a", "A", references=[{"name": "n.B", "subject": "b", "version": 1}])
    with pytest.raises(RegistryError, match="lacks /subjects/b/versions/1"):
        client(fake).latest("a")


def test_a_schema_is_registered_once_and_only_if_compatible(fake: FakeRegistry) -> None:
    import json

    registry = client(fake)
    assert registry.incompatibilities("s", "AVRO", json.dumps(ORDER)) == []
    first = registry.register("s", "AVRO", json.dumps(ORDER))
    assert registry.register("s", "AVRO", json.dumps(ORDER)) == first
    assert registry.find("s", "AVRO", json.dumps(MORE)) is None
    assert registry.incompatibilities("s", "AVRO", json.dumps(MORE)) == []
    assert registry.incompatibilities("s", "AVRO", json.dumps(WRONG)) == ["field n has no default"]
    with pytest.raises(Incompatible, match=r"409 .*field n has no default"):
        registry.register("s", "AVRO", json.dumps(WRONG))
    assert len(fake.subjects["s"]) == 1


@pytest.mark.parametrize(
    ("expected", "login"),
    [
        ("Basic " + base64.b64encode(b"u:p\xc3\xa4ss").decode(), {"username": "u", "password": "päss"}),
        ("Bearer t0ken", {"token": "t0ken"}),
    ],
)
def test_a_login_is_sent_and_a_wrong_one_is_not_tried_again(
    fake: FakeRegistry, expected: str, login: dict[str, str]
) -> None:
    fake.login = expected
    assert client(fake, **login).versions("s") == []
    with pytest.raises(RegistryError, match="returned 401 Unauthorized") as refused:
        client(fake, username="u", password="wrong").versions("s")
    assert not refused.value.retriable


@pytest.mark.parametrize("login", [{"username": "u", "password": "p"}, {"token": "t0ken"}])
def test_a_login_is_not_sent_on_to_another_registry(fake: FakeRegistry, login: dict[str, str]) -> None:
    with running() as other:
        other.add("s", ORDER)
        fake.moved_to = other.url
        assert client(fake, **login).versions("s") == [1]
        assert other.logins == [None]
        assert None not in fake.logins


@pytest.mark.parametrize(("status", "retriable"), [(500, True), (503, True), (429, True), (422, False), (403, False)])
def test_what_may_pass_is_told_from_what_stays(fake: FakeRegistry, status: int, retriable: bool) -> None:
    fake.status = status
    with pytest.raises(RegistryError, match=f"returned {status} .*: as told") as refused:
        client(fake).latest("s")
    assert refused.value.retriable is retriable


def test_a_registry_that_is_away_may_come_back() -> None:
    with pytest.raises(RegistryError, match=r"http://127\.0\.0\.1:1 is not responding: .*refused") as away:
        SchemaRegistry(Registry(url="http://127.0.0.1:1")).latest("s")
    assert away.value.retriable


def test_a_registry_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "TIMEOUT_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(RegistryError, match=r"is not responding: .*timed out") as away:
            SchemaRegistry(Registry(url=url)).latest("s")
    assert away.value.retriable


def test_another_server_is_no_registry(fake: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Answering, "_answered", lambda self, body: (200, {"hello": "world"}))
    registry = client(fake)
    for call in (
        lambda: registry.versions("s"),
        lambda: registry.latest("s"),
        lambda: registry.register("s", "AVRO", ""),
    ):
        with pytest.raises(RegistryError, match="does not answer like a schema registry"):
            call()


def test_tls_is_by_the_given_authority_and_with_the_clients_certificate(tmp_path: Path) -> None:
    authority = Authority()
    ca, mine = str(authority.write(tmp_path / "ca.pem")), authority.issue("client")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert.write_text(mine.certificate_pem)
    key.write_text(mine.key_pem())
    context = server_context(authority.issue(), tmp_path, verify_mode=ssl.CERT_REQUIRED)
    context.load_verify_locations(ca)
    with running(context) as fake:
        fake.add("s", ORDER)
        assert client(fake, ca=ca, cert=str(cert), key=str(key)).versions("s") == [1]
        with pytest.raises(RegistryError, match="certificate verify failed") as strange:
            client(fake, cert=str(cert), key=str(key)).versions("s")
        assert not strange.value.retriable
        with pytest.raises(RegistryError, match="is not responding"):
            client(fake, ca=ca).versions("s")


def test_a_certificate_that_cannot_be_read_is_named() -> None:
    with pytest.raises(RegistryError, match=r"/nowhere/ca\.pem"):
        SchemaRegistry(Registry(url="https://localhost", ca="/nowhere/ca.pem"))
