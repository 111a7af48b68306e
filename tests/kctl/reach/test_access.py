"""Sources of the address and the password, and which of several wins."""

from __future__ import annotations

from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import pytest

from kctl.errors import Exit, KctlError
from kctl.reach.access import Access, Secret, addresses, resolve


class GivenSettings(NamedTuple):
    context: str = ""
    bootstrap: str = ""
    command_config: str = ""
    extra: dict[str, str] = {}  # noqa: RUF012 - nobody changes it


def test_nothing_said() -> None:
    access = resolve(GivenSettings(), {"PATH": "/bin", "KCTL_BOOTSTRAP": ""})
    assert access == Access()
    assert access.bootstrap == (("localhost", 9092),)
    assert not access.has_tls
    assert not access.has_sasl


def test_flags_before_environment() -> None:
    environment = {"KCTL_BOOTSTRAP": "dev:1", "KCTL_CLIENT_ID": "me", "KCTL_PROTECTED": "true"}
    assert resolve(GivenSettings(), environment) == Access((("dev", 1),), client_id="me", protected=True)
    assert resolve(GivenSettings(bootstrap="prod"), environment).bootstrap == (("prod", 9092),)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", [("a", 9092)]),
        ("a:1, b:2 ,", [("a", 1), ("b", 2)]),
        ("[::1]:9094", [("::1", 9094)]),
        ("[::1]", [("::1", 9092)]),
        ("fe80::1%eth0", [("fe80::1%eth0", 9092)]),
        ("SASL_SSL://a:9093", [("a", 9093)]),
    ],
)
def test_addresses(text: str, expected: list[tuple[str, int]]) -> None:
    assert addresses(text) == tuple(expected)


@pytest.mark.parametrize("text", ["", ",", "a:", ":9092", "a:port", "a:0", "a:65536", "a:-1", "[]:1"])
def test_no_addresses(text: str) -> None:
    with pytest.raises(KctlError) as error:
        addresses(text)
    assert error.value.exit_code is Exit.USAGE


SASL = {"KCTL_SECURITY_PROTOCOL": "sasl_ssl", "KCTL_MECHANISM": "plain", "KCTL_USERNAME": "alice"}


def test_sasl_from_the_environment() -> None:
    access = resolve(GivenSettings(), SASL | {"KCTL_PASSWORD": "sesame"})
    assert access.has_tls
    assert access.has_sasl
    assert (access.mechanism, access.username, access.password()) == ("PLAIN", "alice", "sesame")


@pytest.mark.parametrize(
    ("environment", "what"),
    [
        ({"KCTL_SECURITY_PROTOCOL": "TLS"}, 'there is no security protocol "TLS"'),
        ({"KCTL_SECURITY_PROTOCOL": "SASL_SSL"}, "no SASL mechanism is given"),
        (SASL | {"KCTL_MECHANISM": "NTLM"}, 'kctl has no SASL mechanism "NTLM"'),
        (SASL | {"KCTL_MECHANISM": "GSSAPI", "KCTL_KEYTAB": "k", "KCTL_USERNAME": ""}, "GSSAPI needs a username"),
        (SASL, "PLAIN needs a password"),
        (SASL | {"KCTL_USERNAME": ""}, "PLAIN needs a username"),
        (SASL | {"KCTL_MECHANISM": "OAUTHBEARER"}, "OAUTHBEARER needs a token"),
        ({"KCTL_CHECK_HOSTNAME": "maybe"}, 'check_hostname must be true or false, not "maybe"'),
    ],
)
def test_what_does_not_fit_together(environment: dict[str, str], what: str) -> None:
    with pytest.raises(KctlError) as error:
        resolve(GivenSettings(), environment)
    assert (error.value.what, error.value.exit_code) == (what, Exit.USAGE)


def test_kerberos_needs_no_name_where_the_system_has_tickets() -> None:
    access = resolve(GivenSettings(), {"KCTL_SECURITY_PROTOCOL": "sasl_ssl", "KCTL_MECHANISM": "gssapi"})
    assert (access.mechanism, access.username, access.keytab, access.kerberos_service) == ("GSSAPI", "", "", "kafka")


def test_secrets_are_shown_nowhere() -> None:
    access = resolve(GivenSettings(), SASL | {"KCTL_PASSWORD": "sesame"})
    assert "sesame" not in f"{access} {access!r} {access.password} {access.password!r} {[access.password]}"


def test_secret_of_a_file_and_of_a_command(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(" open sesame \nsecond line\n")
    assert Secret(file=str(file))() == " open sesame "
    count = tmp_path / "count"
    secret = Secret(command=f"echo run >> {count}; echo sesame")
    assert (secret(), secret()) == ("sesame", "sesame")
    assert count.read_text() == "run\n", "a command may ask a person: once"


@pytest.mark.parametrize("secret", [Secret("p\udce4ss"), Secret(command=r"printf 'p\344ss'")])
def test_secret_that_is_not_utf_8(secret: Secret) -> None:
    with pytest.raises(KctlError, match="the secret is not UTF-8") as error:
        secret()
    assert error.value.exit_code is Exit.USAGE


def test_command_is_run_once_for_connections_that_open_at_once(tmp_path: Path) -> None:
    count = tmp_path / "count"
    secret = Secret(command=f"echo run >> {count}; sleep 0.05; echo sesame")
    threads = [Thread(target=secret) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count.read_text() == "run\n"


@pytest.mark.parametrize(("command", "how"), [("exit 3", "ended with 3"), ("true", "printed nothing")])
def test_command_for_a_password_that_fails(command: str, how: str) -> None:
    with pytest.raises(KctlError, match=how) as error:
        Secret(command=command)()
    assert error.value.exit_code is Exit.UNAUTHORIZED


def test_password_displaces_the_command_of_a_lower_layer() -> None:
    from kctl.reach.access import access_of

    layers: list[dict[str, Any]] = [{"password_command": "pass kafka"}, {"password": "sesame"}]
    assert access_of(layers).password == Secret("sesame")
    assert access_of(layers[::-1]).password == Secret(command="pass kafka")
