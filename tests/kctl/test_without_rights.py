"""Commands without the rights to see something, on a real broker with an authorizer: they say that it was not seen."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkad.names import TopicPartition
from kctl.errors import Exit
from tests.kctl.conftest import Kctl
from tests.kctl.groups.reading import commit
from tests.oracle.kafka import Kafka, free_port, missing

pytestmark = [pytest.mark.slow, pytest.mark.java]

_LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_gil="sesame";'


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[int, int]]:
    """Its ports: for whoever may do everything, and for gil."""
    if why := missing("3.9"):
        pytest.skip(why)
    plain, sasl = free_port(), free_port()
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl}",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": _LOGIN,
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with Kafka("3.9", port=plain, settings=settings, heap="384m"):
        yield plain, sasl


@pytest.fixture
def on_all(kctl: Kctl, cluster: tuple[int, int]) -> Kctl:
    return lambda *arguments: kctl("-b", f"127.0.0.1:{cluster[0]}", *arguments)


@pytest.fixture
def as_gil(kctl: Kctl, cluster: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> Kctl:
    login = {"SECURITY_PROTOCOL": "SASL_PLAINTEXT", "MECHANISM": "PLAIN", "USERNAME": "gil", "PASSWORD": "sesame"}

    def call(*arguments: object) -> object:
        with monkeypatch.context() as environment:
            for name, value in login.items():
                environment.setenv(f"KCTL_{name}", value)
            return kctl("-b", f"127.0.0.1:{cluster[1]}", *arguments)

    return call  # type: ignore[return-value]


def test_what_was_not_looked_at_is_named_and_nothing_claimed(on_all: Kctl, as_gil: Kctl) -> None:
    ran = as_gil("topics", "list")
    assert (ran.code, ran.out) == (Exit.DONE, "0 topics: there is none, or none that may be seen\n")
    assert on_all("topics", "create", "seen", "-p", 2, "-r", 1).code == Exit.DONE
    assert on_all("acls", "add", "--allow", "gil", "--topic", "seen", "--operation", "Describe").code == Exit.DONE
    ran = as_gil("topics", "list")
    assert ran.out.splitlines()[1].split() == ["seen", "2", "1", "single-replica", "-", "-"]
    assert ran.out.endswith("1 topic, 2 partitions, size not known; all healthy\n")
    (broker,) = json.loads(as_gil("brokers", "list", "-o", "json").out)["items"]
    assert (broker["state"], broker["version"]) == ("answers", "3.9")

    ran = as_gil("doctor", "--skip", "racks")
    assert ran.code in (Exit.UNAUTHORIZED, Exit.FAILED)
    assert "does not answer" not in ran.out + ran.err
    assert "?      not looked at, or not everywhere: disks, filling" in ran.out
    (fine,) = [line for line in ran.out.splitlines() if line.startswith("ok")]
    assert "disks" not in fine and "acls" not in fine and "min-isr" not in fine and "settings" not in fine
    unknown = [
        row["id"] for row in json.loads(as_gil("doctor", "-o", "json").out)["items"] if row["severity"] == "unknown"
    ]
    assert {"disks", "filling", "settings", "acls", "min-isr", "unclean-elections"} <= set(unknown)
    assert on_all("doctor", "--only", "disks,settings,acls", "--fail-on", "error").code in (Exit.DONE, Exit.FINDINGS)


def test_a_topic_whose_settings_may_not_be_seen_is_not_deleted_where_they_are_to_be_saved(
    on_all: Kctl, as_gil: Kctl, tmp_path: Path
) -> None:
    assert on_all("topics", "create", "sec", "-p", 1, "-r", 1, "--config", "retention.ms=-1").code == Exit.DONE
    allow = ("acls", "add", "--allow", "gil", "--topic", "sec", "--operation", "Describe", "--operation", "Delete")
    assert on_all(*allow).code == Exit.DONE
    ran = as_gil("topics", "delete", "sec", "-y", "--undo-dir", tmp_path)
    assert "moves under way are not known: the list of moves is refused (CLUSTER_AUTHORIZATION_FAILED)" in ran.err
    assert ran.code == Exit.UNAUTHORIZED, ran.err
    assert re.search(r"error: settings of topic sec are not saved: .*\(TOPIC_AUTHORIZATION_FAILED\)", ran.err), ran.err
    assert on_all("topics", "delete", "sec", "-y", "--undo-dir", tmp_path).code == Exit.DONE, "it is still there"


def test_groups_that_may_not_be_seen_are_missed_where_all_are_asked_for(
    on_all: Kctl, as_gil: Kctl, cluster: tuple[int, int], tmp_path: Path
) -> None:
    assert on_all("topics", "create", "read", "-p", 1, "-r", 1).code == Exit.DONE
    commit(cluster[0], "reading", {TopicPartition("read", 0): 0})
    allow = ("acls", "add", "--allow", "gil", "--topic", "read", "--operation", "Describe", "--operation", "Delete")
    assert on_all(*allow, "--operation", "DescribeConfigs").code == Exit.DONE
    ran = as_gil("groups", "list")
    told = "the list of groups may be incomplete: groups that may not be seen are left out"
    assert (ran.code, told in ran.err) == (Exit.DONE, True), ran.err
    ran = as_gil("topics", "delete", "read", "-y", "--undo-dir", tmp_path)
    assert (ran.code, "whether groups read them is not known" in ran.err) == (Exit.UNAUTHORIZED, True), ran.err
    assert on_all("topics", "delete", "read", "-y", "--undo-dir", tmp_path).code == Exit.DONE, "it is still there"
    assert "incomplete" not in on_all("groups", "list").err
