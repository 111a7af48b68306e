"""Kafka's settings in kctl's words."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from kctl.command.options import options
from kctl.errors import Exit, KctlError
from kctl.reach.properties import read, translate, translate_flags

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"
BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


def test_a_file_is_read_in_javas_encoding(tmp_path: Path) -> None:
    """So that a password is the same one as in Kafka's tools."""
    file = tmp_path / "client.properties"
    for content, password in (("p=\u00e9", "\u00c3\u00a9"), ("\ufeffp=\\u00e9", "\u00e9")):
        file.write_bytes(content.encode())
        assert read(str(file)) == {"p": password}
    file.write_bytes("p=\u00e9".encode("latin-1"))
    assert read(str(file)) == {"p": "\u00e9"}


def test_the_example_of_flags_is_one() -> None:
    (help_text,) = [each.help for each in options() if isinstance(each, click.Option) and "-X" in each.opts]
    (name, value), *_ = re.findall(r"as in (\S+)=([^\s;]+)", help_text or "")
    assert translate_flags({name: value})


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        (
            f'{PLAIN} required username="alice" password="a\\"b\\\\c;d=e";',
            {"username": "alice", "password": 'a"b\\c;d=e'},
        ),
        (f"{SCRAM} REQUIRED\n  username=alice\n  password=sesame;", {"username": "alice", "password": "sesame"}),
        (
            f"{SCRAM} required username=a password=b tokenauth=true;",
            {"username": "a", "password": "b", "tokenauth": "true"},
        ),
        (f'{BEARER} required token="abc.def.";', {"token": "abc.def."}),
        (f"{PLAIN} required username='alice' password='a b;\\054\\t';", {"username": "alice", "password": "a b;,\t"}),
        (
            f"{PLAIN} required /* of old */ username=alice password=b // today\n;",
            {"username": "alice", "password": "b"},
        ),
        (
            f'{KERBEROS} required useKeyTab=true storeKey=true keyTab="/k" principal="a@R" serviceName="queue";',
            {"keytab": "/k", "username": "a@R", "kerberos_service": "queue"},
        ),
    ],
)
def test_line_of_jaas(line: str, fields: dict[str, str]) -> None:
    translated = translate({"sasl.jaas.config": line})
    assert (translated.fields, translated.unknown) == (fields, {})
    assert set(translated.sources.values()) == {"sasl.jaas.config"}


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        (f'{KERBEROS} required useTicketCache=true ticketCache="/tmp/tickets";', {}),
        (f'{BEARER} required clientId="a" clientSecret="b";', {}),
        (f'{SCRAM} required username="a" password="b" other="c";', {"username": "a", "password": "b"}),
        ("", {}),
    ],
)
def test_line_of_jaas_that_says_something_else_too_is_kept(line: str, fields: dict[str, str]) -> None:
    translated = translate({"sasl.jaas.config": line})
    assert (translated.fields, translated.unknown) == (fields, {"sasl.jaas.config": line})


@pytest.mark.parametrize(
    "rest", ['password="sesame', 'password="ses"ame";', "password=ses,ame;", "; another required;"]
)
def test_line_of_jaas_that_is_broken_is_not_shown(rest: str) -> None:
    with pytest.raises(KctlError) as error:
        translate({"sasl.jaas.config": f'{PLAIN} required username="alice" {rest}'})
    assert error.value.exit_code is Exit.USAGE
    assert "sesame" not in f"{error.value.what} {error.value.hints}"


def test_settings_of_tls() -> None:
    translated = translate(
        {
            "security.protocol": "SSL",
            "ssl.truststore.location": "/ca.p12",
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.password": "t",
            "ssl.keystore.location": "/client.p12",
            "ssl.key.password": "k",
            "ssl.keystore.password": "s",
            "ssl.endpoint.identification.algorithm": "",
            "ssl.cipher.suites": "TLS_AES_128_GCM_SHA256",
        }
    )
    assert translated.fields == {
        "security_protocol": "SSL",
        "ca": "/ca.p12",
        "ca_password": "t",
        "certificate": "/client.p12",
        "key_password": "s",
        "check_hostname": False,
    }
    assert translated.sources["key_password"] == "ssl.keystore.password"
    assert translated.unknown == {"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}


def test_flag_that_means_nothing() -> None:
    assert translate_flags({"sasl.username": "alice", "client.id": "me"}) == {"username": "alice", "client_id": "me"}
    with pytest.raises(KctlError, match=r'unknown setting "sasl\.mechansim"') as error:
        translate_flags({"sasl.mechansim": "PLAIN"})
    assert error.value.hints[0].startswith('did you mean "sasl.mechanism"')
