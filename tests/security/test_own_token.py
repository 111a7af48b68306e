"""Where a broker has the token from by which it logs in at others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkad.broker.sasl_client import shown
from kafkad.security.mechanism import LoginFailed
from kafkad.security.oauth_token import Expected, UnsecuredTokens
from kafkad.security.oauthbearer import OAuthBearer
from kafkad.security.own_token import NoToken, TokenSource
from tests.security.issuers import CLIENT, SECRET, Issuer
from tests.security.tokens import NOW_MS, unsecured


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Issuer]:
    with Issuer(tmp_path_factory.mktemp("issuer")) as issuer:
        yield issuer


def test_a_file_is_read_each_time(tmp_path: Path) -> None:
    file = tmp_path / "a token"
    source = TokenSource(file.as_uri())
    for text in ("one", "two"):
        file.write_text(f"{text}\n")
        assert source.token() == text
    file.write_text("\n")
    with pytest.raises(NoToken, match="has no token"):
        source.token()
    file.unlink()
    with pytest.raises(NoToken, match="No such file"):
        source.token()


def test_an_issuer_gives_one_for_id_and_secret(issuer: Issuer) -> None:
    source = TokenSource(issuer.url, CLIENT, SECRET, "kafka", str(issuer.ca))
    assert source.token().count(".") == 2
    assert issuer.wanted[-1] == {"grant_type": ["client_credentials"], "scope": ["kafka"]}
    source._replace(scope="").token()
    assert issuer.wanted[-1] == {"grant_type": ["client_credentials"]}
    with pytest.raises(NoToken, match=f"{issuer.url} answers with 401") as caught:
        source._replace(client_secret="another").token()
    assert "another" not in str(caught.value)
    with pytest.raises(NoToken, match="CERTIFICATE_VERIFY_FAILED"):
        source._replace(trusted=None).token()


def test_a_broker_takes_what_another_shows() -> None:
    server = OAuthBearer(UnsecuredTokens(Expected(skew_ms=0), lambda: NOW_MS))
    talk = shown(unsecured(sub="broker"))
    login = server.respond(next(talk))
    assert not isinstance(login, bytes)
    assert login.user == "broker"
    with pytest.raises(StopIteration):
        talk.send(login.last)


def test_a_refusal_is_heard_to_its_end() -> None:
    server = OAuthBearer(UnsecuredTokens(Expected(skew_ms=0), lambda: NOW_MS))
    talk = shown(unsecured(sub="broker", exp=5))
    why = server.respond(next(talk))
    assert isinstance(why, bytes)
    with pytest.raises(LoginFailed, match="invalid_token"):
        server.respond(talk.send(why))
