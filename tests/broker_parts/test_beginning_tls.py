"""TLS at a start: who may come in is judged by the settings in force, whatever becomes of their stores."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkad.broker.identity import StartError
from kafkad.broker.settings import Settings
from kafkad.broker.starting import begin_keys_and_logins
from kafkad.broker.tls import BrokerTls
from kafkad.clock import SystemClock
from kafkad.config import load
from kafkad.names import METADATA_FILE
from kafkad.timers import Timers
from tests.certificates import Authority

AUTHORITY = Authority()
OWN = "listener.name.ssl.ssl."


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def begun(
    loop: asyncio.AbstractEventLoop, directory: Path, stored: dict[str, str], *, in_file: bool = True
) -> ssl.SSLContext:
    """The context of a listener whose file asks no client for a certificate, and is good by itself if it has a key."""
    keys = AUTHORITY.issue().write(directory / "keys.pem")
    trusted = AUTHORITY.write(directory / "ca.pem")
    listeners = "listeners=PLAINTEXT://127.0.0.1:9092,SSL://localhost:9093"
    (directory / METADATA_FILE).touch()
    own = [f"ssl.keystore.location={keys}"] if in_file else []
    file = load(None, [listeners, f"log.dirs={directory}", f"ssl.truststore.location={trusted}", *own], {})
    settings, clock = Settings(file), SystemClock()
    settings.override(cluster_wide={}, per_broker={OWN + name: value for name, value in stored.items()})
    tls = BrokerTls(file, loop, clock, Timers())
    begin_keys_and_logins(settings, tls)
    tls.refresh(settings.config)
    server = tls.server("SSL")
    assert server is not None
    return server.context


def test_a_start_ends_where_the_truststore_of_the_settings_in_force_cannot_be_read(
    loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    gone = tmp_path / "gone.pem"
    with pytest.raises(StartError, match=r"listener SSL, .*: ssl\.truststore\.location=.*gone\.pem: cannot be read"):
        begun(loop, tmp_path, {"client.auth": "required", "truststore.location": str(gone)})


def test_who_may_come_in_does_not_go_with_a_keystore_that_cannot_be_read(
    loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    other = Authority("Another CA").write(tmp_path / "other.pem")
    stored = {
        "keystore.location": str(tmp_path / "gone.pem"),
        "client.auth": "required",
        "truststore.location": str(other),
    }
    context = begun(loop, tmp_path, stored)
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert [dict(*each["subject"]) for each in context.get_ca_certs()] == [{"commonName": "Another CA"}]


@pytest.mark.parametrize(
    "unusable", [{"enabled.protocols": "TLSv1.2,TLSv1.1"}, {"cipher.suites": "TLS_RSA_WITH_NOTHING_AT_ALL"}]
)
def test_versions_and_suites_that_cannot_be_used_are_those_of_the_file(
    loop: asyncio.AbstractEventLoop, tmp_path: Path, caplog: pytest.LogCaptureFixture, unusable: dict[str, str]
) -> None:
    other = Authority("Another CA").write(tmp_path / "other.pem")
    stored = {"client.auth": "required", "truststore.location": str(other)}
    context = begun(loop, tmp_path, stored | unusable)
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert [dict(*each["subject"]) for each in context.get_ca_certs()] == [{"commonName": "Another CA"}]
    assert f"listener SSL keeps the TLS settings and stores it has: ssl.{next(iter(unusable))}" in caplog.text


def test_keys_that_only_the_store_has_go_with_versions_of_the_file(
    loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    keys = AUTHORITY.issue().write(tmp_path / "stored.pem")
    stored = {"keystore.location": str(keys), "enabled.protocols": "TLSv1.1"}
    context = begun(loop, tmp_path, stored, in_file=False)
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
