"""SCRAM against the examples of its RFCs, and against servers that cheat."""

from __future__ import annotations

import pytest

from kctl.reach.scram import Scram, ScramError

EXAMPLES = {
    "sha1": (  # RFC 5802, section 5
        "fyko+d2lbbFgONRv9qkxdawL",
        "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
        "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
        "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
    ),
    "sha256": (  # RFC 7677, section 3
        "rOprNGfwEbeRWgbNEkqO",
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ),
}


@pytest.mark.parametrize("hash_name", EXAMPLES)
def test_examples_of_the_rfcs(hash_name: str) -> None:
    nonce, server_first, final, server_final = EXAMPLES[hash_name]
    scram = Scram(hash_name, "user", "pencil", nonce)
    assert scram.first == f"n,,n=user,r={nonce}".encode()
    assert scram.final(server_first.encode()).decode() == final
    scram.verify(server_final.encode())


def test_name_with_the_signs_that_mean_something() -> None:
    assert Scram("sha256", "a=b,cé", "", "x").first == "n,,n=a=3Db=2Ccé,r=x".encode()


def test_extension_is_part_of_what_is_proved() -> None:
    nonce, server_first, final, _ = EXAMPLES["sha256"]
    scram = Scram("sha256", "user", "pencil", nonce, ",tokenauth=true")
    assert scram.first == f"n,,n=user,r={nonce},tokenauth=true".encode()
    assert scram.final(server_first.encode()).decode() != final


@pytest.mark.parametrize(
    ("server_first", "complaint"),
    [
        (b"r=other,s=QSXCR+Q6sek8bf92,i=4096", "nonce"),
        (b"r=mine,s=QSXCR+Q6sek8bf92,i=4096", "nonce"),
        (b"r=mine1,s=?,i=4096", '"s" in base64'),
        (b"r=mine1,i=4096", '"s" in base64'),
        (b"r=mine1,s=QSXCR+Q6sek8bf92,i=1", "fewer than 4096"),
        (b"r=mine1,s=QSXCR+Q6sek8bf92,i=-4096", "fewer than 4096"),
        (b"r=mine1,s=QSXCR+Q6sek8bf92", "fewer than 4096"),
        (b"r=mine1,s=QSXCR+Q6sek8bf92,i=1000000", "1000000 or more"),
        (b"", "nonce"),
        (b"\xff", "UTF-8"),
    ],
)
def test_server_that_wants_the_password_for_too_little_or_too_much_work(server_first: bytes, complaint: str) -> None:
    with pytest.raises(ScramError, match=complaint):
        Scram("sha256", "user", "pencil", "mine").final(server_first)


@pytest.mark.parametrize(
    ("server_final", "complaint"),
    [
        (b"v=" + b"A" * 43 + b"=", "does not know the password"),
        (b"v=", "does not know the password"),
        (b"e=invalid-proof", "invalid-proof"),
        (b"", '"v" in base64'),
    ],
)
def test_server_that_does_not_know_the_password(server_final: bytes, complaint: str) -> None:
    nonce, server_first, *_ = EXAMPLES["sha256"]
    scram = Scram("sha256", "user", "pencil", nonce)
    scram.final(server_first.encode())
    with pytest.raises(ScramError, match=complaint):
        scram.verify(server_final)
