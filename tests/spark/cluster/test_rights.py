"""Rights that a job's user lacks, at brokers with an authorizer: each hint is a command that grants one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple

import pytest

from kafkad_etl.cluster.rights import grant, need_delivery, principal
from kafkad_etl.cluster.topics import DELIVERY, WRITE, absent, hidden, readable, writable
from kafkad_etl.errors import EtlError, EtlExit
from kctl.errors import Exit
from kctl.reach.access import Access, Secret
from kctl.reach.session import Session
from kctl.settings import Settings
from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl
from tests.oracle.kafka import Kafka, free_port, missing

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="sesame";'
ID = "etl-orders-0123"


class Guarded(NamedTuple):
    """The ports for whoever may do everything, and for users who log in."""

    plain: int
    sasl: int


@pytest.fixture(scope="module", params=["kafkad", pytest.param("kafka", marks=pytest.mark.java)])
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    ports = Guarded(free_port(), free_port())
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{ports.plain},SASL_PLAINTEXT://127.0.0.1:{ports.sasl}",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
        "auto.create.topics.enable": "false",
    }
    if request.param == "kafka" and (why := missing("3.9")):
        pytest.skip(why)
    started: KafkadProcess | Kafka
    if request.param == "kafka":
        started = Kafka("3.9", port=ports.plain, settings=settings, heap="384m")
    else:
        started = KafkadProcess(tmp_path_factory.mktemp("guarded"), settings)
        started.port = ports.plain
    with started:
        yield ports


@pytest.fixture
def alice(guarded: Guarded) -> Iterator[Session]:
    access = Access(
        bootstrap=(("127.0.0.1", guarded.sasl),),
        security_protocol="SASL_PLAINTEXT",
        mechanism="PLAIN",
        username="alice",
        password=Secret("sesame"),
    )
    with closing(Session(Settings(), access)) as session:
        yield session


@pytest.fixture
def admin(kctl: Kctl, guarded: Guarded) -> Kctl:
    return partial(kctl, "-b", f"127.0.0.1:{guarded.plain}")


def followed(admin: Kctl, refused: EtlError) -> None:
    """Does what its hints say."""
    for hint in refused.hints:
        asked, _, command = hint.partition(": kctl ")
        assert asked == "ask the cluster's administrator"
        ran = admin(*command.split())
        assert ran.code == Exit.DONE, ran.err


@pytest.mark.slow
def test_exactly_once_needs_two_rights_and_their_commands_are_said(alice: Session, admin: Kctl) -> None:
    need = partial(need_delivery, alice, ID, "etl-orders-")
    with pytest.raises(EtlError) as refused:
        need()
    assert refused.value.exit_code == EtlExit.CLUSTER
    assert refused.value.what == (
        f'sink.topic.delivery: not authorised to write with transactional id "{ID}" and to read group "{ID}"'
    )
    followed(admin, refused.value)
    need()
    assert admin("acls", "remove", "--allow", "alice", "--group", "etl-orders-", "--prefixed", "-y").code == Exit.DONE
    with pytest.raises(EtlError, match=f'delivery: not authorised to read group "{ID}"$'):
        need()


@pytest.mark.slow
def test_each_use_of_a_topic_needs_a_right_of_its_own(alice: Session, admin: Kctl) -> None:
    assert admin("topics", "create", "out", "-y").code == Exit.DONE
    reads, writes = (
        partial(readable, alice, ["out"], "source.topics.{place}"),
        partial(writable, alice, "out", "k", None),
    )
    uses: list[tuple[Any, str]] = [
        (writes, 'not authorised to see topic "out"'),
        (partial(writes, operations=DELIVERY), 'k: not authorised to read topic "out"'),
    ]
    for use, why in uses:
        with pytest.raises(EtlError) as refused:
            use()
        assert refused.value.what == why
        followed(admin, refused.value)
        use()
    reads()
    assert admin("acls", "remove", "--allow", "alice", "--topic", "out", "--operation", "Write", "-y").code == Exit.DONE
    with pytest.raises(EtlError, match='k: not authorised to write topic "out"'):
        writes(operations=(WRITE,))


@pytest.mark.slow
def test_a_topic_that_was_deleted_and_may_not_be_seen_is_known_to_be_gone_once_it_may(
    alice: Session, admin: Kctl
) -> None:
    assert absent(alice, {"gone": ""}) == {"gone": "hidden"}
    followed(admin, hidden(alice, ["gone"]))
    assert absent(alice, {"gone": ""}) == {"gone": "deleted"}


@pytest.mark.parametrize(
    ("access", "name"),
    [
        (Access(), "User:ANONYMOUS"),
        (Access(security_protocol="SSL", certificate="c.pem"), "User:NAME"),
        (Access(security_protocol="SASL_SSL", mechanism="SCRAM-SHA-256", username="al ice"), "User:al ice"),
        (Access(security_protocol="SASL_SSL", mechanism="SCRAM-SHA-256", username="id", tokenauth=True), "User:NAME"),
        (Access(security_protocol="SASL_SSL", mechanism="OAUTHBEARER"), "User:NAME"),
    ],
)
def test_the_user_is_named_as_far_as_it_is_known(access: Access, name: str) -> None:
    assert principal(access) == name


def test_a_command_is_what_a_shell_takes() -> None:
    access = Access(security_protocol="SASL_SSL", mechanism="PLAIN", username="al ice")
    asked = "ask the cluster's administrator: kctl acls add --allow 'User:al ice' --operation"
    assert grant(access, "Read", "topic", "t") == f"{asked} Read --topic t"
    assert grant(access, "Write", "transactional-id", "etl-a", prefixed=True) == (
        f"{asked} Write --transactional-id etl-a --prefixed"
    )
