from __future__ import annotations

import json
import re
from collections.abc import Mapping

import pytest

from kafkad import __version__
from kafkad.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from kctl.brokers.api_versions import rows_of
from kctl.brokers.facts import answer_state, counts
from kctl.brokers.release import release
from kctl.errors import Disconnected, Exit, KctlError, OtherCluster, Unreachable
from kctl.reach.log_dirs import LogDir
from tests.kctl.conftest import Kctl
from tests.kctl.flaky import Flaky


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ({0: (0, 11), 1: (0, 17), 2: (0, 9), 3: (0, 12)}, "3.9"),
        ({0: (3, 12), 1: (4, 17), 2: (1, 10), 3: (0, 13)}, "4.0"),
        ({0: (3, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13)}, "4.2"),
        ({0: (0, 9), 1: (0, 15), 2: (0, 8), 3: (0, 12)}, "3.5"),
        ({0: (0, 7), 1: (0, 10)}, "before 3.1"),
        ({}, "before 3.1"),
    ],
)
def test_releases(versions: Mapping[int, tuple[int, int]], expected: str) -> None:
    assert release(versions) == expected


def test_what_brokers_lead_hold_and_lag() -> None:
    partitions = [
        MetadataResponsePartition(leader_id=1, replica_nodes=[1, 2], isr_nodes=[1, 2]),
        MetadataResponsePartition(leader_id=-1, replica_nodes=[3], isr_nodes=[3]),
        MetadataResponsePartition(leader_id=1, replica_nodes=[2, 1, 3], isr_nodes=[1]),
    ]
    led, held, lagging = counts([MetadataResponseTopic(partitions=partitions)])
    assert (led, held, lagging) == ({1: 2}, {1: 2, 2: 2, 3: 2}, {2: 1, 3: 1})


def test_list(on_broker: Kctl) -> None:
    on_broker("topics", "create", "brokers-list", "-p", 2, "-r", 1, "-y")
    ran = on_broker("brokers", "list", "-o", "json")
    (row,) = json.loads(ran.out)["items"]
    assert (ran.code, row["id"], row["host"]) == (Exit.DONE, 1, "127.0.0.1")
    assert (row["controller"], row["state"]) == (True, "ok")
    assert row["leaders"] == row["partitions"] >= 2
    assert row["free_bytes"] > 0
    assert on_broker("brokers", "ls").out.splitlines()[1].endswith("yes         ok")


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        ([], "ok"),
        ([LogDir(1, "/data", None, None, KctlError("gone"), ())], "directory offline"),
        (Disconnected("it is silent"), "no answer"),
        (Unreachable("user u could not log in", exit_code=Exit.UNAUTHORIZED), "no access"),
        (OtherCluster("h:1", "theirs", "ours", 1), "other cluster"),
        (KctlError("not authorized"), "answers"),
    ],
)
def test_the_state_of_a_broker_is_told_by_what_it_answers(answer: list[LogDir] | KctlError, state: str) -> None:
    assert answer_state(answer) == state


def test_the_address_of_another_cluster_is_no_silence(kctl: Kctl, pair: tuple[Flaky, Flaky]) -> None:
    first, other = pair
    other.cluster_id = "theirs"
    for verb in ("list", "log-dirs"):
        ran = kctl("-b", first.address, "brokers", verb, "-o", "json")
        assert [item["state"] for item in json.loads(ran.out)["items"]] == ["answers", "other cluster"], verb
        assert f"broker 2 advertises {other.address}, which is a broker of cluster theirs" in ran.err


def test_describe(on_broker: Kctl) -> None:
    ran = on_broker("brokers", "describe", 1)
    assert (ran.code, ran.err) == (Exit.DONE, "")
    assert "config      auto.create.topics.enable false" in ran.out
    (row,) = json.loads(on_broker("brokers", "describe", 1, "-o", "json").out)["items"]
    assert f"version     kafkad {__version__}, with the APIs of Kafka {row['version']}\n" in ran.out
    assert row["kafkad"] == __version__
    (listed,) = json.loads(on_broker("brokers", "list", "-o", "json").out)["items"]
    assert (listed["kafkad"], listed["version"]) == (__version__, row["version"])
    header, line = on_broker("brokers", "list").out.splitlines()
    assert header.split()[3:5] == ["VERSION(API)", "KAFKAD"] and line.split()[4] == __version__
    assert row["log_dirs"][0]["error"] is None
    assert {"name": "broker.id", "value": "1", "source": "file"} in row["configs"]
    ran = on_broker("brokers", "describe", 7)
    assert (ran.code, "broker 7 does not exist" in ran.err) == (Exit.NOT_FOUND, True)


def test_log_dirs(on_broker: Kctl) -> None:
    on_broker("topics", "create", "brokers-dirs", "-p", 2, "-r", 1, "-y")
    (row,) = json.loads(on_broker("brokers", "log-dirs", "-o", "json").out)["items"]
    assert (row["broker"], row["moving"], row["state"]) == (1, 0, "ok")
    assert row["partitions"] >= 2
    assert on_broker("brokers", "log-dirs", 7).code == Exit.NOT_FOUND


def test_api_versions(on_broker: Kctl) -> None:
    rows = json.loads(on_broker("brokers", "api-versions", 1, "-o", "json").out)["items"]
    assert {row["api"] for row in rows} >= {"Produce", "Fetch", "Metadata"}
    assert all(row["first"] <= row["last"] and row["brokers"] == [1] for row in rows)


def test_brokers_of_different_versions_have_lines_of_their_own() -> None:
    assert rows_of({1: {3: (0, 12)}, 2: {3: (0, 13)}, 3: {3: (0, 12)}}) == [
        {"api": "Metadata", "key": 3, "first": 0, "last": 12, "brokers": [1, 3]},
        {"api": "Metadata", "key": 3, "first": 0, "last": 13, "brokers": [2]},
    ]


def test_loggers(on_broker: Kctl) -> None:
    ran = on_broker("brokers", "loggers", 1, "-o", "json")
    assert ran.code == Exit.DONE
    before = {row["logger"]: row["level"] for row in json.loads(ran.out)["items"]}
    assert "root" in before
    (example,) = re.findall(r"Example: kctl (.*)", on_broker("brokers", "loggers", "--help").out)
    assert on_broker(*example.split(), "--dry-run").code == Exit.DONE
    name = next(name for name in before if name != "root")
    assert on_broker("brokers", "loggers", 1, f"{name}=error", "-y").code == Exit.DONE
    after = json.loads(on_broker("brokers", "loggers", 1, "-o", "json").out)["items"]
    assert {"broker": 1, "logger": name, "level": "ERROR"} in after
    assert on_broker("brokers", "loggers", 1, f"{name}=", "-y").code == Exit.DONE
    assert on_broker("brokers", "loggers", 1, "nonsense", "-y").code == Exit.USAGE
    assert on_broker("brokers", "loggers", 7).code == Exit.NOT_FOUND
