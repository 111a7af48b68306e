"""Stores of keys and certificates in every form, good ones and broken ones."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PrivateFormat

from kafkad.security.stores import Store, StoreError, read_keys, read_trusted
from tests.certificates import Authority

AUTHORITY = Authority()
ISSUED = AUTHORITY.issue("broker")
CHAIN = (ISSUED.der, AUTHORITY.certificate.public_bytes(Encoding.DER))
PASSWORD = "öffne dich"


def keys_fit(store: Store) -> bool:
    keys = read_keys(store)
    keys.load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    return keys.chain == CHAIN


def file(tmp_path: Path, content: str | bytes) -> str:
    path = tmp_path / "a store.jks"  # its name says nothing
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
@pytest.mark.parametrize("password", [None, PASSWORD])
def test_pem(tmp_path: Path, form: PrivateFormat, password: str | None) -> None:
    path = file(tmp_path, "a comment\n" + ISSUED.chain_pem + ISSUED.key_pem(password, form))
    assert keys_fit(Store("ssl.keystore.location", path, key_password=password))
    assert read_trusted(Store("ssl.truststore.location", path)) == CHAIN


@pytest.mark.parametrize("joint", [" ", "\n", ""])
def test_pem_that_stands_in_the_settings_also_on_one_line(joint: str) -> None:
    pem = (ISSUED.key_pem() + ISSUED.chain_pem).replace("\n", joint)
    assert keys_fit(Store("ssl.keystore.key", pem=pem))
    assert read_trusted(Store("ssl.truststore.certificates", pem=AUTHORITY.pem.replace("\n", joint))) == CHAIN[1:]


def test_pkcs12(tmp_path: Path) -> None:
    path = file(tmp_path, ISSUED.pkcs12(PASSWORD))
    assert keys_fit(Store("ssl.keystore.location", path, password=PASSWORD))


def test_a_locked_key_without_its_password_asks_nobody() -> None:
    store = Store("ssl.keystore.key", pem=ISSUED.key_pem(PASSWORD) + ISSUED.chain_pem)
    with pytest.raises(ssl.SSLError):
        read_keys(store).load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))


def test_no_key_is_left_on_a_disk_or_in_an_open_file(tmp_path: Path) -> None:
    path = file(tmp_path, ISSUED.pkcs12(PASSWORD))
    store = Store("ssl.keystore.location", path, password=PASSWORD)
    keys_fit(store)
    before = len(os.listdir("/proc/self/fd"))
    keys_fit(store)
    assert len(os.listdir("/proc/self/fd")) == before
    assert os.listdir(tmp_path) == ["a store.jks"]


@pytest.mark.parametrize(
    "content, why",
    [
        (b"\xce\xce\xce\xce\0\0\0\2", "JCEKS"),
        (b"something", "neither PEM nor PKCS12 nor JKS"),
        (b"", "neither PEM nor PKCS12 nor JKS"),
        (ISSUED.chain_pem, "no private keys in it"),
        (ISSUED.key_pem() * 2 + ISSUED.chain_pem, "2 private keys"),
        (ISSUED.key_pem(), "no certificate in it"),
        (ISSUED.key_pem() + "-----BEGIN CERTIFICATE-----\n???\n-----END CERTIFICATE-----", "damaged"),
        (ISSUED.pkcs12("other"), "password is wrong"),
        (ISSUED.pkcs12(PASSWORD)[:-60], "a store.jks: "),
        (b"\xfe\xed\xfe\xed\0\0\0\2\0\0\0\1" + bytes(20), "password is wrong, or it is damaged"),
    ],
)
def test_what_cannot_be_used_is_named_with_its_reason(tmp_path: Path, content: Any, why: str) -> None:
    with pytest.raises(StoreError, match=r"ssl\.keystore\.location=") as refused:
        read_keys(Store("ssl.keystore.location", file(tmp_path, content), password=PASSWORD))
    assert why in str(refused.value)
    assert PASSWORD not in str(refused.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file"):
        read_trusted(Store("ssl.truststore.location", str(tmp_path / "none")))


def test_what_is_no_file_or_has_no_end_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large.pem").touch()
    os.truncate(tmp_path / "large.pem", 11 << 20)
    for path, why in (
        (tmp_path / "pipe", "is no regular file"),
        (Path("/dev/null"), "is no regular file"),
        (tmp_path, "Is a directory"),
        (tmp_path / "large.pem", "is larger than 10 MB"),
    ):
        with pytest.raises(StoreError, match=rf"^ssl\.truststore\.location={path}: cannot be read: .*{why}$"):
            read_trusted(Store("ssl.truststore.location", str(path)))


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    """As Kubernetes mounts secrets."""
    AUTHORITY.write(tmp_path / "ca.pem")
    (tmp_path / "link.pem").symlink_to(tmp_path / "ca.pem")
    assert read_trusted(Store("ssl.truststore.location", str(tmp_path / "link.pem"))) == CHAIN[1:]


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(scope="module")
def javas(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Stores that keytool makes of PKCS12, and of trusted certificates."""
    if shutil.which("keytool") is None:
        pytest.skip("needs keytool")
    directory = tmp_path_factory.mktemp("stores")
    source = directory / "source.p12"
    source.write_bytes(ISSUED.pkcs12("source"))
    AUTHORITY.write(directory / "ca.pem")

    def make(kind: str, *, key: bool, password: str = "password", key_password: str | None = None) -> str:
        target = directory / f"{kind}-{key}-{key_password}"
        if target.exists():  # keytool refuses to import the same twice
            return str(target)
        to = "-keystore" if not key else "-destkeystore"
        options = (to, str(target), "-deststoretype" if key else "-storetype", kind, "-noprompt")
        if key:
            of = ("-srckeystore", str(source), "-srcstorepass", "source", "-deststorepass", password)
            keys = ("-srcalias", "broker", "-destkeypass", key_password or password)
            run("keytool", "-importkeystore", *of, *keys, *options)
        else:
            ca = ("-file", str(directory / "ca.pem"), "-alias", "ca", "-storepass", password)
            run("keytool", "-importcert", *ca, *options)
        return str(target)

    return make


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_stores_of_keytool(javas: Callable[..., str], kind: str) -> None:
    assert keys_fit(Store("k", javas(kind, key=True), password="password"))
    assert read_trusted(Store("t", javas(kind, key=False), password="password")) == CHAIN[1:]
    with pytest.raises(StoreError, match="password is wrong"):
        read_keys(Store("k", javas(kind, key=True), password="wrong"))


@pytest.mark.slow
def test_a_jks_key_may_have_a_password_of_its_own(javas: Callable[..., str]) -> None:
    path = javas("JKS", key=True, key_password="another")
    assert keys_fit(Store("k", path, password="password", key_password="another"))
    with pytest.raises(StoreError, match="password of its private key is wrong"):
        read_keys(Store("k", path, password="password"))
    assert read_trusted(Store("t", javas("JKS", key=False))) == CHAIN[1:]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
@pytest.mark.parametrize("options", [[], ["-legacy"], ["-keypbe", "PBE-SHA1-3DES", "-certpbe", "PBE-SHA1-3DES"]])
def test_pkcs12_of_openssl_new_and_old(tmp_path: Path, options: list[str]) -> None:
    issued = AUTHORITY.issue("broker", key=rsa.generate_private_key(65537, 2048))
    (tmp_path / "pem").write_text(issued.pem)
    path = tmp_path / "p12"
    run("openssl", "pkcs12", "-export", "-in", str(tmp_path / "pem"), "-out", str(path), "-passout", "pass:x", *options)
    keys = read_keys(Store("k", str(path), password="x"))
    keys.load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    assert keys.chain[0] == issued.der
