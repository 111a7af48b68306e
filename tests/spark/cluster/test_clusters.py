from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kafkad_etl.cluster.clusters import Clusters, client_of
from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.job import Kafka, Security
from kctl.cli import run
from kctl.reach.access import Access, Secret
from kctl.settings import Settings
from tests.kctl.certificates import Authority


def test_a_password_is_quoted_as_jaas_reads_it() -> None:
    access = Access(
        security_protocol="SASL_PLAINTEXT", mechanism="PLAIN", username="alice", password=Secret('se"sa\\me\n, =é;')
    )
    assert client_of(access, "etl-j") == {
        "bootstrap.servers": "localhost:9092",
        "client.id": "etl-j",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="alice" password="se\\"sa\\\\me\\n, =é;";',
    }


def test_scram_and_delegation_tokens() -> None:
    access = Access(
        security_protocol="SASL_SSL", mechanism="SCRAM-SHA-512", username="id", password=Secret("hmac"), tokenauth=True
    )
    jaas = client_of(access, "c")["sasl.jaas.config"]
    assert jaas.endswith('scram.ScramLoginModule required username="id" password="hmac" tokenauth="true";')


def test_a_token_of_oauth_is_refused() -> None:
    with pytest.raises(EtlError) as refused:
        client_of(Access(security_protocol="SASL_SSL", mechanism="OAUTHBEARER", token=Secret("t")), "c")
    assert refused.value.exit_code == EtlExit.USAGE


def test_certificates_go_along_as_pem_and_old_keys_as_pkcs8(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    client = authority.issue("alice")
    old = tmp_path / "old.key"
    convert = ["openssl", "rsa", "-traditional"] if "RSA" in _kind(client.key) else ["openssl", "ec"]
    subprocess.run([*convert, "-in", str(client.key), "-out", str(old)], check=True, capture_output=True)
    for key in (client.key, old):
        access = Access(
            security_protocol="SSL", ca=str(authority.certificate), certificate=str(client.certificate), key=str(key)
        )
        settings = client_of(access, "c")
        assert settings["ssl.truststore.type"] == settings["ssl.keystore.type"] == "PEM"
        assert settings["ssl.truststore.certificates"].startswith("-----BEGIN CERTIFICATE-----")
        assert settings["ssl.keystore.certificate.chain"].startswith("-----BEGIN CERTIFICATE-----")
        assert settings["ssl.keystore.key"].startswith("-----BEGIN PRIVATE KEY-----")
        assert "ssl.endpoint.identification.algorithm" not in settings


def test_an_encrypted_key_is_decrypted_and_a_wrong_password_is_told(tmp_path: Path) -> None:
    identity = Authority(tmp_path).issue("alice", password="sesame")
    access = Access(security_protocol="SSL", certificate=str(identity.certificate), key=str(identity.key))
    settings = client_of(access._replace(key_password=Secret("sesame")), "c")
    assert settings["ssl.keystore.key"].startswith("-----BEGIN PRIVATE KEY-----")
    for wrong in (Secret("open"), Secret()):
        with pytest.raises(EtlError, match="has no private key that Java can read"):
            client_of(access._replace(key_password=wrong), "c")


def _kind(key: Path) -> str:
    shown = subprocess.run(["openssl", "pkey", "-in", str(key), "-noout", "-text"], capture_output=True, check=True)
    return "RSA" if b"modulus" in shown.stdout else "EC"


def test_files_of_the_job_are_beside_it(tmp_path: Path) -> None:
    kafka = Kafka(bootstrap=("h:1", "[::1]:2"), security=Security(protocol="SSL", ca="ca.pem", key="/k.pem"))
    access = Clusters(Settings(), tmp_path, {}).access(kafka)
    assert (access.ca, access.key, access.bootstrap) == (str(tmp_path / "ca.pem"), "/k.pem", (("h", 1), ("::1", 2)))


def test_a_context_is_used_by_its_name_and_the_command_line_where_the_job_names_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contexts = tmp_path / "contexts.yaml"
    monkeypatch.setenv("KCTL_CONFIG", str(contexts))
    assert run(["contexts", "set", "prod", "bootstrap=far:9093"]) == 0
    environment = {"KCTL_CONFIG": str(contexts)}
    settings = Settings()
    assert Clusters(settings, tmp_path, environment).access(Kafka(cluster="prod")).bootstrap == (("far", 9093),)
    settings.bootstrap = "near:1"
    clusters = Clusters(settings, tmp_path, environment)
    assert clusters.access(Kafka()).bootstrap == (("near", 1),)
    for named in (Kafka(cluster="prod"), Kafka(bootstrap=("h:1",))):
        with pytest.raises(EtlError, match="both the job and the command line"):
            clusters.access(named)
