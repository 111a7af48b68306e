from __future__ import annotations

import os
from random import Random

import pytest

from kafkad_etl.process.relaying import Masking, Relay

SECRETS = ("sesame", "ses", "open-sesame-42", "aab")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_secrets_are_masked_wherever_the_pieces_end(size: int) -> None:
    """One may contain another, or begin with its end."""
    text = b"an open-sesame-4 open-sesame-42 sesame sesam aaab ses" * 3
    masking = Masking(SECRETS)
    passed = b"".join(masking.piece(text[at : at + size]) for at in range(0, len(text), size)) + masking.rest()
    assert passed == b"an open-****-4 **** **** ****am a**** ****" * 3


def test_what_cannot_be_a_secret_is_passed_on_at_once() -> None:
    masking = Masking(SECRETS)
    assert masking.piece(b"progress: 10 %") == b"progress: 10 %"
    assert masking.piece(b"se") == b""
    assert masking.piece(b"t") == b"set"
    assert (masking.piece(b"se"), masking.rest(), masking.rest()) == (b"", b"se", b"")
    assert Masking(()).piece(b"se") == b"se"


def test_megabytes() -> None:
    data = Random(7).randbytes(3_000_000)
    reading, writing = os.pipe()
    relay = Relay(writing, ("sesame",))
    passed = bytearray()
    child = os.fork()
    if not child:
        written = 0
        while written < len(data):
            written += os.write(relay.writing, data[written:])
        os._exit(0)
    relay.start()
    while len(passed) < len(data):
        passed += os.read(reading, 1 << 20)
    os.waitpid(child, 0)
    relay.finish(5)
    assert passed == data
    os.close(reading)
    os.close(writing)


def test_a_reader_that_has_gone_does_not_stop_the_program() -> None:
    reading, writing = os.pipe()
    relay = Relay(writing, ())
    os.close(reading)
    program = os.dup(relay.writing)
    relay.start()
    for _ in range(10):
        os.write(program, b"x" * 100_000)  # more than a pipe holds: somebody reads it
    os.close(program)
    relay.finish(5)
    os.close(writing)
