"""TLS settings of a listener, contexts out of them, and how a broker's stores are watched."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from kafkad.broker.tls import BrokerTls, problems
from kafkad.config import Config, load
from kafkad.security.stores import StoreError
from kafkad.security.tls_contexts import Material, client_context, refuses_itself, server_context, users_of
from kafkad.security.tls_settings import TLS_1_3_SUITES, TlsError, TlsSettings, openssl_name
from kafkad.timers import Timers
from tests.certificates import DAY, Authority
from tests.fakes import FakeClock

AUTHORITY = Authority()
ISSUED = AUTHORITY.issue()


def settings(tmp_path: Path, *more: str, listener: str = "SSL") -> TlsSettings:
    keys, trusted = tmp_path / "keys.pem", tmp_path / "ca.pem"
    if not keys.exists():
        ISSUED.write(keys)
    AUTHORITY.write(trusted)
    base = [f"listeners={listener}://:9093", f"{MAP}=SSL:SSL,{listener}:SSL", f"inter.broker.listener.name={listener}"]
    stores = [f"ssl.keystore.location={keys}", f"ssl.truststore.location={trusted}"]
    return TlsSettings.of(load(None, [*base, "advertised.listeners=", *stores, *more], {}), listener)


MAP = "listener.security.protocol.map"


@pytest.mark.parametrize(
    "java, openssl",
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", "DHE-RSA-AES256-GCM-SHA384"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", "ECDHE-RSA-AES256-SHA384"),
    ],
)
def test_suites_have_other_names_in_java(java: str, openssl: str) -> None:
    assert openssl_name(java) == openssl
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(openssl)


def test_suites_of_tls_1_2_can_be_chosen(tmp_path: Path) -> None:
    chosen = ["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", *sorted(TLS_1_3_SUITES)]
    context = server_context(Material.read(settings(tmp_path, f"ssl.cipher.suites={','.join(chosen)}")))
    old = {each["name"] for each in context.get_ciphers() if each["protocol"] != "TLSv1.3"}
    assert old == {"ECDHE-ECDSA-AES128-GCM-SHA256"}
    assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
    assert context.num_tickets == 0


@pytest.mark.parametrize(
    "more, why",
    [
        ("ssl.cipher.suites=TLS_AES_256_GCM_SHA384", "leaves out TLS_AES_128_GCM_SHA256, TLS_CHACHA20"),
        (f"ssl.cipher.suites={','.join(sorted(TLS_1_3_SUITES))}", "has none of TLS 1.2"),
        ("ssl.cipher.suites=TLS_NOPE", "OpenSSL has no TLS_NOPE"),
        (f"ssl.cipher.suites=TLS_NULL,{','.join(sorted(TLS_1_3_SUITES))}", "OpenSSL has no TLS_NULL"),
        ("ssl.enabled.protocols=TLSv1.1,TLSv1.2", "TLSv1.1 cannot be used"),
        ("ssl.principal.mapping.rules=RULE:broken", "ssl.principal.mapping.rules: Invalid rule"),
        ("listener.name.ssl.ssl.enabled.protocols=SSLv3", "SSLv3 cannot be used"),
    ],
)
def test_what_cannot_be_had_is_refused(tmp_path: Path, more: str, why: str) -> None:
    with pytest.raises(TlsError) as refused:
        found = settings(tmp_path, more)
        server_context(Material.read(found))
        users_of(found)
    assert why in str(refused.value)


def test_certificates_of_clients_need_somebody_who_is_trusted(tmp_path: Path) -> None:
    with pytest.raises(TlsError, match="who has issued the certificates of clients"):
        server_context(Material.read(settings(tmp_path, "ssl.client.auth=requested", "ssl.truststore.location=")))


def test_a_damaged_truststore_is_told_as_such(tmp_path: Path) -> None:
    found = settings(tmp_path, "ssl.client.auth=required")
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    with pytest.raises(TlsError, match=r"ca\.pem: a certificate in it is damaged"):
        server_context(Material.read(found))


def test_settings_of_a_listener_go_before_those_of_all(tmp_path: Path) -> None:
    found = settings(
        tmp_path, "ssl.client.auth=required", "listener.name.outside.ssl.client.auth=none", listener="OUTSIDE"
    )
    assert found.client_auth == "none"


@pytest.mark.parametrize(
    "more, client_auth",
    [([], "none"), (["listener.name.sasl_ssl.ssl.client.auth=requested"], "requested")],
)
def test_who_logs_in_shows_a_certificate_only_where_the_listener_asks_for_one(
    more: list[str], client_auth: str
) -> None:
    """As in Kafka. It goes on to be asked for where metrics are, which have no logins."""
    listeners = "listeners=SSL://localhost:9093,SASL_SSL://localhost:9094", "http.listener=https://localhost:9404"
    base = *listeners, "inter.broker.listener.name=SSL", "sasl.enabled.mechanisms=SCRAM-SHA-512"
    config = load(None, [*base, "ssl.keystore.location=/keys.pem", "ssl.client.auth=required", *more], {})
    found = [TlsSettings.of(config, listener).client_auth for listener in ("SSL", "SASL_SSL", "HTTP")]
    assert found == ["required", client_auth, "required"]
    warning = (
        "ssl.client.auth=required does not hold at SASL_SSL: with SASL it has to be set as "
        "listener.name.LISTENER.ssl.client.auth"
    )
    assert (warning in config.warnings) == (not more)


def test_a_broker_must_be_able_to_connect_to_itself(tmp_path: Path) -> None:
    def why(host: str, *more: str) -> str | None:
        material = Material.read(settings(tmp_path, "ssl.client.auth=required", *more))
        return refuses_itself(server_context(material), client_context(material), host)

    assert why("localhost") is None
    assert "elsewhere" in (why("elsewhere") or "")
    assert why("elsewhere", "ssl.endpoint.identification.algorithm=") is None
    AUTHORITY.issue(usages=[ExtendedKeyUsageOID.SERVER_AUTH]).write(tmp_path / "keys.pem")
    assert why("localhost") is not None


# -- watching ----------------------------------------------------------------------------------------------------------


class Watched:
    def __init__(self, directory: Path, *more: str, among_others: bool = False) -> None:
        self.clock = FakeClock(now_ms=_now_ms())
        self.keys = ISSUED.write(directory / "keys.pem")
        stores = (
            f"ssl.keystore.location={self.keys}",
            f"ssl.truststore.location={AUTHORITY.write(directory / 'ca.pem')}",
        )
        fixed = "listeners=SSL://localhost:9093", "security.inter.broker.protocol=SSL", "ssl.client.auth=required"
        self.config = load(None, [*fixed, *stores, *more], {}, among_others=among_others)
        self.loop = asyncio.new_event_loop()
        self.timers = Timers()
        self.tls = BrokerTls(self.config, self.loop, self.clock, self.timers)
        self.tls.begin(self.config, self.config)

    @property
    def context(self) -> Any:
        server = self.tls.server("SSL")
        assert server is not None
        return server.context


def _now_ms() -> int:
    from kafkad.clock import SystemClock

    return SystemClock().now_ms()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    made = Watched(tmp_path)
    yield made
    made.loop.close()


def test_only_what_has_changed_is_read_again(watched: Watched) -> None:
    before = watched.context
    watched.tls.refresh(watched.config)
    assert watched.context is before
    AUTHORITY.issue().write(watched.keys)
    watched.tls.refresh(watched.config)
    renewed = watched.context
    assert renewed is not before
    watched.tls.refresh(watched.config, every=True)
    assert watched.context is not renewed
    assert watched.tls.server("PLAINTEXT") is None


def test_it_is_told_which_certificate_is_shown_now(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    renewed = AUTHORITY.issue(until=300 * DAY)
    with caplog.at_level("INFO", "kafkad.broker.tls"):
        renewed.write(watched.keys)
        watched.tls.refresh(watched.config)
    [record] = caplog.records
    assert record.getMessage() == (
        "listener SSL: its TLS stores were read again; it shows the certificate of CN=localhost, issued by CN=Test CA, "
        f"which expires on {renewed.certificate.not_valid_after_utc:%Y-%m-%d}"
    )


def test_an_authority_that_is_replaced_in_one_step_is_told_of(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    trusted, new = watched.keys.parent / "ca.pem", Authority("New CA")

    def told(trust: str, issuer: Authority) -> bool:
        caplog.clear()
        trusted.write_text(trust)
        issuer.issue().write(watched.keys)
        watched.tls.refresh(watched.config)
        assert watched.tls.is_up_to_date
        return "whoever still has the stores that it had and this broker refuse each other: " in caplog.text

    steps = (AUTHORITY.pem + new.pem, AUTHORITY), (AUTHORITY.pem + new.pem, new), (new.pem, new)
    assert [told(*each) for each in steps] == [False, False, False]
    assert told(AUTHORITY.pem, AUTHORITY)


def test_files_are_looked_at_each_minute(watched: Watched) -> None:
    async def pass_time(ms: int) -> None:
        watched.clock.advance(ms)
        watched.timers.expire(watched.clock.monotonic_ms())
        await asyncio.sleep(0)

    async def look() -> None:
        following = asyncio.create_task(watched.tls.follow_files())
        await asyncio.sleep(0)
        for _ in range(2):
            before = watched.context
            AUTHORITY.issue().write(watched.keys)
            await pass_time(59_999)
            assert watched.context is before
            await pass_time(1)
            assert watched.context is not before
        following.cancel()

    watched.loop.run_until_complete(look())


def test_what_is_no_good_is_told_once_until_it_changes(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    before = watched.context
    AUTHORITY.issue(usages=[ExtendedKeyUsageOID.SERVER_AUTH]).write(watched.keys)
    for _ in range(3):
        watched.tls.refresh(watched.config)
    assert caplog.text.count("brokers could not connect to each other with it") == 1
    assert watched.context is before
    watched.keys.write_text("half of")
    watched.tls.refresh(watched.config)
    assert not watched.tls.is_up_to_date
    assert caplog.text.count("keeps the TLS settings and stores it has") == 2
    AUTHORITY.issue().write(watched.keys)
    watched.tls.refresh(watched.config)
    assert watched.tls.is_up_to_date
    assert watched.context is not before


@pytest.mark.parametrize("where", ["builtins.open", "os.memfd_create", "ssl.SSLContext.load_cert_chain"])
def test_what_could_not_be_read_is_tried_again_and_told_once(
    watched: Watched, where: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def none_left(*args: object, **named: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    before = watched.context
    AUTHORITY.issue().write(watched.keys)
    with monkeypatch.context() as system:
        system.setattr(where, none_left)
        for _ in range(3):
            watched.tls.refresh(watched.config)
    assert caplog.text.count("keeps the TLS settings and stores it has") == 1
    assert watched.context is before
    watched.tls.refresh(watched.config)
    assert watched.context is not before


def test_a_certificate_that_is_not_valid_yet_is_taken_when_its_time_has_come(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    before = watched.context
    watched.clock.advance(-1_200_000)  # what OpenSSL tries is by the machine's clock
    AUTHORITY.issue(since=timedelta(minutes=-10)).write(watched.keys)
    for _ in range(3):
        watched.tls.refresh(watched.config)
    assert watched.context is before
    assert caplog.text.count("is not valid before") == 1
    watched.clock.advance(601_000)
    watched.tls.refresh(watched.config)
    renewed = watched.context
    assert renewed is not before
    watched.tls.refresh(watched.config)
    assert watched.context is renewed


def test_other_settings_change_although_a_store_cannot_be_used(watched: Watched) -> None:
    def at(name: str) -> Config:
        more = {"ssl.keystore.location": str(watched.keys.parent / name)}
        return watched.config.with_overrides(cluster_wide={}, per_broker=more)

    watched.tls.check(watched.config, [])
    with pytest.raises((TlsError, StoreError), match=r"typo\.pem"):
        watched.tls.check(at("typo.pem"), [])
    watched.tls.refresh(at("typo.pem"))
    watched.tls.check(at("typo.pem"), [])
    with pytest.raises((TlsError, StoreError), match=r"another\.pem"):
        watched.tls.check(at("another.pem"), [])
    watched.tls.check(watched.config, [])


def test_settings_change_although_those_in_force_contradict_each_other(watched: Watched) -> None:
    def with_both(**more: str) -> Config:
        inline = watched.config.with_file(pem_instead_of(watched.keys, watched.config)).config
        own = {"listener.name.ssl.ssl.keystore.location": str(watched.keys)}
        return inline.with_overrides(cluster_wide={}, per_broker=own | more)

    named = ["listener.name.ssl.ssl.keystore.location"]
    watched.tls.refresh(with_both())
    watched.tls.check(with_both(**{"log.cleaner.threads": "2"}), ["log.cleaner.threads"])
    with pytest.raises(TlsError, match="not both"):
        watched.tls.check(with_both(), named)
    watched.tls.check(with_both().with_overrides(cluster_wide={}, per_broker={}), named)


def pem_instead_of(keys: Path, config: Config) -> Config:
    """That configuration, with what is in the file of its keys itself."""
    key, certificates = keys.read_text().split("-----BEGIN CERTIFICATE-----", 1)
    return load(
        None,
        [
            "listeners=SSL://localhost:9093",
            "security.inter.broker.protocol=SSL",
            "ssl.client.auth=required",
            f"ssl.keystore.key={key}",
            f"ssl.keystore.certificate.chain=-----BEGIN CERTIFICATE-----{certificates}",
            f"ssl.truststore.location={config.value('ssl.truststore.location')}",
        ],
        {},
    )


def test_a_start_is_by_the_dynamic_settings_with_the_keys_of_the_file_if_need_be(tmp_path: Path) -> None:
    def begun(location: Path, watched: Watched) -> Any:
        dynamic = {"listener.name.ssl.ssl.keystore.location": str(location)}
        tls = BrokerTls(watched.config, watched.loop, watched.clock, watched.timers)
        tls.begin(watched.config.with_overrides(cluster_wide={}, per_broker=dynamic), watched.config)
        return tls

    watched = Watched(tmp_path)
    other = AUTHORITY.issue("another").write(tmp_path / "other.pem")
    assert begun(tmp_path / "none.pem", watched).server("SSL").context.cert_store_stats()["x509"] == 1
    watched.keys.unlink()
    assert begun(other, watched).server("SSL").context.cert_store_stats()["x509"] == 1
    with pytest.raises(TlsError, match=r"listener SSL, .*none\.pem"):
        begun(tmp_path / "none.pem", watched)
    watched.loop.close()


def test_who_sets_a_location_again_is_told_that_the_file_there_cannot_be_used(watched: Watched) -> None:
    location = "listener.name.ssl.ssl.keystore.location"
    config = watched.config.with_overrides(cluster_wide={}, per_broker={location: str(watched.keys)})
    watched.keys.write_text("half of")
    for _ in range(2):
        with pytest.raises((TlsError, StoreError), match=r"keys\.pem"):
            watched.tls.check(config, [location])
        watched.tls.check(config, ["message.max.bytes", "listener.name.other.ssl.keystore.location"])
        watched.tls.refresh(config)
    AUTHORITY.issue().write(watched.keys)
    watched.tls.check(config, [location])


def test_the_end_of_a_certificate_is_told_three_times(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    told = []
    for day in range(1, 90):
        watched.clock.advance(86_400_000)
        caplog.clear()
        watched.tls.warn_of_expiry()
        if caplog.text:
            told.append((90 - day, caplog.text.split("expires in ")[1].split()[0]))
    assert [days for days, _ in told] == [30, 7, 1]
    families = {family.name: family for family in watched.tls.collect()}
    [(labels, seconds)] = families["kafkad_tls_certificate_expiry_seconds"].samples
    assert labels == (("listener", "SSL"),)
    assert 0 < seconds < 90_000


@pytest.mark.parametrize("begins_anew", [False, True])
def test_that_a_certificate_has_expired_is_told_once(
    watched: Watched, caplog: pytest.LogCaptureFixture, begins_anew: bool
) -> None:
    watched.clock.advance(91 * 86_400_000)
    if begins_anew:
        watched.tls.begin(watched.config, watched.config)
    for _ in range(2):
        watched.tls.warn_of_expiry()
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert re.search(r"listener SSL: \S*keys.pem: the certificate of .* expired on .*; clients will", caplog.text)


def test_rules_for_a_change_of_names_can_be_lifted(tmp_path: Path) -> None:
    watched = Watched(tmp_path, "ssl.allow.dn.changes=true", "ssl.allow.san.changes=true")
    before = watched.context
    AUTHORITY.issue("another", names=["localhost"]).write(watched.keys)
    watched.tls.refresh(watched.config)
    assert watched.context is not before
    watched.loop.close()


def test_a_check_finds_an_end_that_has_come_and_a_chain_that_does_not_hang_together(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.loop.close()
    assert not list(problems(watched.config, datetime.now(UTC)))
    [late] = problems(watched.config, datetime.now(UTC) + 91 * DAY)
    assert "expired on" in late
    watched.keys.write_text(ISSUED.key_pem() + ISSUED.certificate_pem + Authority("Another").pem)
    [apart] = problems(watched.config, datetime.now(UTC))
    assert "CN=Another follows CN=localhost, but CN=Test CA has issued that" in apart


def test_a_check_finds_that_brokers_of_a_cluster_cannot_connect_to_each_other(tmp_path: Path) -> None:
    def found(*more: str) -> list[str]:
        watched = Watched(tmp_path, *more)
        watched.loop.close()
        return list(problems(watched.config, datetime.now(UTC)))

    elsewhere, cluster = "advertised.listeners=SSL://elsewhere:9093", "zookeeper.connect=zk:2181"
    assert not found(elsewhere)
    assert not found(cluster)
    [problem] = found(elsewhere, cluster)
    assert "listener SSL: brokers could not connect to each other with it: " in problem
    assert "elsewhere" in problem
    nobody = ("ssl.truststore.location=", "ssl.client.auth=none")
    assert not found(*nobody)
    for each in ("kafkad.brokers=2", cluster):
        [problem] = found(*nobody, each)
        assert "; set ssl.truststore.location to whom" in problem


@pytest.mark.parametrize("of_a_cluster", [True, False])
def test_a_start_without_a_truststore_tells_that_it_cannot_verify_other_brokers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, of_a_cluster: bool
) -> None:
    """Its own certificates are renewed, nevertheless: clients need them."""
    nobody = ("ssl.truststore.location=", "ssl.client.auth=none")
    watched = Watched(tmp_path, *nobody, *(["zookeeper.connect=zk:2181"] if of_a_cluster else []))
    watched.loop.close()
    text = "listener SSL: brokers could not connect to each other with it: "
    assert [each.levelname for each in caplog.records if text in each.getMessage()] == ["ERROR"] * of_a_cluster
    before = watched.context
    AUTHORITY.issue().write(watched.keys)
    watched.tls.refresh(watched.config)
    assert watched.tls.is_up_to_date
    assert watched.context is not before


def test_a_start_alone_does_not_ask_whether_brokers_could_connect_to_each_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Watched(tmp_path, "advertised.listeners=SSL://elsewhere:9093").loop.close()
    assert "brokers could not connect" not in caplog.text


def test_a_broker_of_a_cluster_keeps_the_truststore_by_which_it_knows_the_others(tmp_path: Path) -> None:
    watched = Watched(tmp_path, "zookeeper.connect=zk:2181", "ssl.client.auth=none")
    watched.loop.close()
    before = watched.context
    fresh = load(
        None,
        [
            "listeners=SSL://localhost:9093",
            "security.inter.broker.protocol=SSL",
            "zookeeper.connect=zk:2181",
            f"ssl.keystore.location={watched.keys}",
        ],
        {},
    )
    watched.tls.refresh(fresh)
    assert not watched.tls.is_up_to_date
    assert watched.context is before


def test_a_broker_of_a_host_takes_no_keys_by_which_the_others_would_not_know_it(tmp_path: Path) -> None:
    nobody = ("ssl.truststore.location=", "ssl.client.auth=none")
    watched = Watched(tmp_path, *nobody, among_others=True)
    watched.loop.close()
    before = watched.context
    AUTHORITY.issue().write(watched.keys)
    watched.tls.refresh(watched.config)
    assert not watched.tls.is_up_to_date
    assert watched.context is before
