"""Every version of every API answers as real Kafka does; see answers.py for where the expected answers come from."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker import KafkadProcess
from tests.clients import answers, probes
from tests.clients.asker import KEYS, Asker
from tests.clients.conftest import SETTINGS
from tests.oracle.kafka import VERSIONS, missing
from tests.txn.questions import QUESTIONS

EXPECTED = answers.load()
WITH_SECURITY = {
    f"{verb}{what}"
    for what, verbs in {
        "DelegationToken": ("Create", "Renew", "Expire", "Describe"),
        "ClientQuotas": ("Describe", "Alter"),
        "Acls": ("Describe", "Create", "Delete"),
        "UserScramCredentials": ("Describe", "Alter"),
        "Handshake": ("Sasl",),
        "Authenticate": ("Sasl",),
    }.items()
    for verb in verbs
}
"""Asked with the frames in tests/golden/security, which a Kafka with users, rights and tokens answered."""


@pytest.fixture(scope="module")
def kafkad(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkadProcess]:
    with KafkadProcess(tmp_path_factory.mktemp("answers"), SETTINGS) as kafkad:
        yield kafkad


@pytest.fixture
def asker(kafkad: KafkadProcess) -> Iterator[Asker]:
    asker = Asker(kafkad.port)
    yield asker
    asker.client.close()


@pytest.mark.client("API versions", "{api} {version}")
@pytest.mark.parametrize(("api", "version"), sorted(EXPECTED))
def test_answers_are_kafkas(asker: Asker, api: str, version: int) -> None:
    first, last = asker.served[KEYS[api]]
    assert first <= version <= last
    expected = EXPECTED[api, version]
    assert answers.opened(expected, probes.answers(asker, api, version)) == expected


def test_every_version_served_is_asked(asker: Asker) -> None:
    assert set(answers.served(asker)) <= set(EXPECTED)
    elsewhere = {question.api for question in QUESTIONS} | WITH_SECURITY
    assert {api for api in KEYS if KEYS[api] in asker.served} <= set(probes.PROBES) | elsewhere


@pytest.mark.long
@pytest.mark.java
@pytest.mark.timeout(300)
def test_expected_answers_are_what_kafka_says_now() -> None:
    for release in VERSIONS:
        if reason := missing(release):
            pytest.skip(reason)
    assert answers.dump(answers.of_kafka()) == answers.FILE.read_text()
