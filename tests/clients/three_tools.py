"""One session at the command line with Kafka's own tools on a cluster of three brokers, kafkads or Kafka's; see tools.py.

Partitions are placed by hand, so that each broker's part is the same in every run.
"""

# ruff: noqa: E501 - one command a line
from __future__ import annotations

import contextlib
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.clients.asker import Asker
from tests.clients.tools import LINES, Outcome, Run, Step
from tests.cluster.processes import Cluster

SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "auto.create.topics.enable": "false",
    "replica.fetch.max.bytes": "65536",
}
"""Fetches small enough for a throttle to hold a follower back."""

SECONDS = 60
_STEADY_S = 0.3
_SPREAD = "1:2:3,2:3:1,3:1:2"
_INTERNAL = f"--replica-assignment {_SPREAD} --config cleanup.policy=compact"


def _topics(name: str, words: str) -> Step:
    return Step(name, "topics", words)


def _moves(name: str, words: str) -> Step:
    return Step(name, "reassign-partitions", words)


def _elects(name: str, words: str) -> Step:
    return Step(name, "leader-election", words)


def _configs(name: str, words: str) -> Step:
    return Step(name, "configs", words)


ALL_UP = [
    _topics("create the topic of offsets", f"--create --topic __consumer_offsets {_INTERNAL}"),
    _topics("create the topic of transactions", f"--create --topic __transaction_state {_INTERNAL}"),
    _topics("create with an assignment", f"--create --topic t1 --replica-assignment {_SPREAD}"),
    _topics("create with three replicas", "--create --topic spread --partitions 6 --replication-factor 3"),
    _topics("delete a topic with three replicas", "--delete --topic spread"),
    _topics("create with too many replicas", "--create --topic t2 --replication-factor 4"),
    _topics("create with one broker twice", "--create --topic t2 --replica-assignment 1:1"),
    _topics("create with uneven assignments", "--create --topic t2 --replica-assignment 1:2,3"),
    _topics("create with a minimum in sync", "--create --topic min --replica-assignment 1:3 --config min.insync.replicas=2"),
    _topics("create on one broker", "--create --topic only --replica-assignment 3"),
    _topics("create to be moved", "--create --topic moved --replica-assignment 1:2,2:1"),
    _topics("create to be filled", "--create --topic filled --replica-assignment 1"),
    _topics("list topics of three", "--list --exclude-internal"),
    _topics("describe a topic of three", "--describe --topic t1"),
    _topics("describe the topic of offsets", "--describe --topic __consumer_offsets"),
    _topics("describe partitions at min ISR, all up", "--describe --at-min-isr-partitions"),
    _topics("describe under-replicated partitions, all up", "--describe --under-replicated-partitions"),
    _topics("add partitions with an assignment", f"--alter --topic t1 --partitions 4 --replica-assignment {_SPREAD},3:2:1"),
    _topics("add partitions with an assignment that is too short", f"--alter --topic t1 --partitions 6 --replica-assignment {_SPREAD},3:2:1,1:2:3"),
    _topics("add partitions with fewer replicas", f"--alter --topic t1 --partitions 5 --replica-assignment {_SPREAD},3:2:1,1"),
    _topics("describe added partitions", "--describe --topic t1"),
    _configs("alter one broker", "--alter --entity-type brokers --entity-name 2 --add-config log.cleaner.threads=2"),
    _configs("describe that broker", "--describe --entity-type brokers --entity-name 2"),
    _configs("describe another broker", "--describe --entity-type brokers --entity-name 3"),
    _configs("alter the default of all brokers", "--alter --entity-type brokers --entity-default --add-config background.threads=12"),
    _configs("describe all brokers", "--describe --entity-type brokers"),
    _configs("give that broker its default back", "--alter --entity-type brokers --entity-name 2 --delete-config log.cleaner.threads"),
    _configs("take the default of all brokers back", "--alter --entity-type brokers --entity-default --delete-config background.threads"),
    Step("produce to three brokers", "console-producer", "--topic t1 --property parse.key=true --property key.separator=:", LINES),
    Step("offsets on three brokers", "get-offsets", "--topic t1"),
    Step("offsets of all topics", "get-offsets", "--exclude-internal-topics"),
    Step("consume from a leader", "console-consumer", "--topic t1 --partition 2 --offset earliest --max-messages 3 "
         "--property print.key=true --property print.offset=true --timeout-ms 20000"),
    Step("consume in a group of three brokers", "console-consumer", "--topic t1 --group c1 --from-beginning --max-messages 20 --timeout-ms 30000 "
         "--property print.value=false"),
    Step("describe a group of three brokers", "consumer-groups", "--describe --group c1 --state"),
    Step("list groups of three brokers", "consumer-groups", "--list --state"),
    Step("delete records on three brokers", "delete-records", "--offset-json-file {dir}/delete-three.json"),
    Step("log directories of three brokers", "log-dirs", "--describe --topic-list min,only"),
    Step("log directories of two brokers", "log-dirs", "--describe --topic-list min,only --broker-list 1,2"),
    Step("log directories of a broker beside three", "log-dirs", "--describe --topic-list min --broker-list 1,7"),
    Step("producers of a leader", "transactions", "--bootstrap-server {bootstrap} describe-producers --topic only --partition 0"),
    Step("producers of a follower", "transactions", "--bootstrap-server {bootstrap} describe-producers --topic only --partition 0 --broker-id 2"),
    Step("transactions of three brokers", "transactions", "--bootstrap-server {bootstrap} list"),
    Step("a transaction that is not there", "transactions", "--bootstrap-server {bootstrap} describe --transactional-id nobody"),
    Step("hanging transactions of a broker", "transactions", "--bootstrap-server {bootstrap} find-hanging --broker-id 1"),
    Step("cluster id of three", "cluster", "cluster-id --bootstrap-server {bootstrap}"),
    Step("fill a topic", "producer-perf", "--topic filled --num-records 6000 --record-size 1000 --throughput -1 "
         "--producer-props bootstrap.servers={bootstrap} acks=all"),
]  # fmt: skip

MOVES = [
    _moves("propose another broker", "--generate --topics-to-move-json-file {dir}/only.json --broker-list 2"),
    _moves("move to other brokers", "--execute --reassignment-json-file {dir}/moves.json"),
    _moves("verify a move", "--verify --reassignment-json-file {dir}/moves.json"),
    _topics("describe a topic that was moved", "--describe --topic moved"),
    _moves("move to one replica more", "--execute --reassignment-json-file {dir}/more.json"),
    _topics("describe a topic with one replica more", "--describe --topic moved"),
    _moves("move to one replica", "--execute --reassignment-json-file {dir}/fewer.json"),
    _topics("describe a topic with one replica", "--describe --topic moved"),
    _moves("move to a broker twice", "--execute --reassignment-json-file {dir}/twice.json"),
    _moves("move to a broker that is not there", "--execute --reassignment-json-file {dir}/nowhere.json"),
    _moves("move a topic that is not there", "--execute --reassignment-json-file {dir}/no-topic.json"),
    _moves("list moves, none", "--list"),
    _moves("cancel a move, none", "--cancel --reassignment-json-file {dir}/moves.json"),
]  # fmt: skip

UNDER_WAY = [
    _moves("move under a throttle", "--execute --throttle 1 --reassignment-json-file {dir}/slow.json"),
    _topics("describe a topic that is being moved", "--describe --topic filled"),
    _topics("describe under-replicated partitions while one is moved", "--describe --under-replicated-partitions"),
    _configs("describe the throttle of brokers", "--describe --entity-type brokers --entity-name 2"),
    _configs("describe the throttle of a topic", "--describe --entity-type topics --entity-name filled"),
    _moves("list moves", "--list"),
    _moves("verify a move under way", "--verify --preserve-throttles --reassignment-json-file {dir}/slow.json"),
    _moves("move again", "--execute --reassignment-json-file {dir}/slow.json"),
    _moves("move in addition", "--execute --additional --reassignment-json-file {dir}/slow-other.json"),
    _topics("add partitions while one is moved", "--alter --topic filled --partitions 2"),
    _moves("cancel a move", "--cancel --reassignment-json-file {dir}/slow-other.json"),
]  # fmt: skip

CANCELLED = [
    _topics("describe a topic whose move was cancelled", "--describe --topic filled"),
    _moves("verify a cancelled move", "--verify --reassignment-json-file {dir}/slow.json"),
    _configs("describe the throttle of a topic at the end", "--describe --entity-type topics --entity-name filled"),
]  # fmt: skip

ONE_DOWN = [
    _topics("describe a topic while a broker is down", "--describe --topic t1"),
    _topics("describe under-replicated partitions", "--describe --under-replicated-partitions --exclude-internal --topic t1"),
    _topics("describe partitions under min ISR", "--describe --under-min-isr-partitions"),
    _topics("describe partitions at min ISR", "--describe --at-min-isr-partitions"),
    _topics("describe unavailable partitions", "--describe --unavailable-partitions"),
    _topics("create while a broker is down", "--create --topic t3 --replication-factor 3"),
    _topics("add partitions while a broker is down", "--alter --topic moved --partitions 3 --replica-assignment 1,2,2"),
    _elects("elect a preferred leader that is down", "--election-type preferred --topic t1 --partition 2"),
    _elects("elect all preferred leaders while a broker is down", "--election-type preferred --all-topic-partitions"),
    _elects("elect a leader uncleanly of none", "--election-type unclean --topic only --partition 0"),
    _elects("elect a leader uncleanly where there is one", "--election-type unclean --topic t1 --partition 0"),
    _moves("move to a broker that is down", "--execute --reassignment-json-file {dir}/down.json"),
    Step("produce with too few in sync", "console-producer", "--topic min --producer-property enable.idempotence=false "
         "--producer-property retries=0", "a\n"),
    Step("offsets without a leader", "get-offsets", "--topic-partitions t1:0,t1:2"),
    Step("log directories of a broker that is down", "log-dirs", "--describe --topic-list min --broker-list 3"),
    Step("log directories of those that are up", "log-dirs", "--describe --topic-list min"),
    Step("consume while a broker is down", "console-consumer", "--topic t1 --partition 2 --offset latest --timeout-ms 500"),
    Step("the group while a broker is down", "consumer-groups", "--describe --group c1 --state"),
    _topics("delete a topic with a replica that is down", "--delete --topic only"),
    _topics("list topics while one waits to be deleted", "--list --exclude-internal"),
]  # fmt: skip

UP_AGAIN = [
    _topics("describe a topic when all are up again", "--describe --topic t1"),
    _topics("list topics when all are up again", "--list --exclude-internal"),
    _elects("elect the preferred leader", "--election-type preferred --topic t1 --partition 2"),
    _elects("elect it again", "--election-type preferred --topic t1 --partition 2"),
    _elects("elect preferred leaders from a file", "--election-type preferred --path-to-json-file {dir}/elect.json"),
    _topics("describe a topic after the elections", "--describe --topic t1"),
    _topics("delete a topic of three", "--delete --topic t1"),
    _topics("list topics at the end", "--list --exclude-internal"),
]  # fmt: skip

UNORDERED = {"delete records on three brokers"}
"""Steps that print their lines in any order."""

THREE_SESSION = [*ALL_UP, *MOVES, *UNDER_WAY, *CANCELLED, *ONE_DOWN, *UP_AGAIN]


def write_files(directory: Path) -> None:
    def moves(*moved: tuple[str, int, list[int]]) -> object:
        return [{"topic": topic, "partition": number, "replicas": replicas} for topic, number, replicas in moved]

    files = {
        "delete-three.json": [{"topic": "t1", "partition": number, "offset": 1} for number in range(3)],
        "elect.json": [{"topic": "t1", "partition": 0}, {"topic": "t1", "partition": 3}],
        "moves.json": moves(("moved", 0, [2, 3]), ("moved", 1, [3, 2])),
        "more.json": moves(("moved", 0, [1, 2, 3]), ("moved", 1, [2, 3, 1])),
        "fewer.json": moves(("moved", 0, [1]), ("moved", 1, [2])),
        "twice.json": moves(("moved", 0, [1, 1])),
        "nowhere.json": moves(("moved", 0, [1, 7])),
        "no-topic.json": moves(("nowhere", 0, [1, 2])),
        "slow.json": moves(("filled", 0, [2])),
        "slow-other.json": moves(("filled", 0, [3])),
        "down.json": moves(("moved", 0, [1, 3])),
    }
    (directory / "only.json").write_text(json.dumps({"topics": [{"topic": "only"}], "version": 1}))
    for name, partitions in files.items():
        (directory / name).write_text(json.dumps({"version": 1, "partitions": partitions}))


def run_three_session(run: Run, cluster: Cluster, directory: Path) -> dict[str, Outcome]:
    found: dict[str, Outcome] = {}

    def run_all(steps: list[Step], *, moving: bool = False) -> None:
        for step in steps:
            if not moving:
                _wait_until_settled(cluster)
            _wait_until_agreed(cluster)
            outcome = run(step, cluster.bootstrap, directory)
            if step.name in UNORDERED:
                outcome = replace(outcome, stdout="\n".join(sorted(outcome.stdout.splitlines())))
            found[step.name] = outcome

    write_files(directory)
    run_all([*ALL_UP, *MOVES])
    run_all(UNDER_WAY, moving=True)
    run_all(CANCELLED)
    cluster.stop(3)
    cluster.until_gone(3)
    run_all(ONE_DOWN)
    cluster.start(3)
    run_all(UP_AGAIN)
    return found


def _wait_until_settled(cluster: Cluster) -> None:
    """Until nothing that a step began is under way, and all replicas that can be are in sync."""

    def settled() -> bool:
        live = cluster.live()
        if cluster.node("/admin/reassign_partitions") or cluster.node("/admin/preferred_replica_election"):
            return False
        for topic in cluster.topics():
            node = cluster.node(f"/brokers/topics/{topic}")
            if node is None or node.get("adding_replicas") or node.get("removing_replicas"):
                return False
            for partition, replicas in node["partitions"].items():
                state = cluster.state(topic, int(partition))
                able = set(replicas) & live
                if state is None or (able and set(state["isr"]) != able):
                    return False
        return True

    cluster.until(settled, "all that was begun has ended", SECONDS)


def _wait_until_agreed(cluster: Cluster) -> None:
    """Until all live brokers say the same of all topics, for a moment."""
    with contextlib.ExitStack() as open_ones:
        askers = [Asker(cluster.brokers[broker].port) for broker in cluster.live()]
        for asker in askers:
            open_ones.callback(asker.client.close)

        def agreed() -> bool:
            before = [_told(asker) for asker in askers]
            time.sleep(_STEADY_S)
            return before == [before[0]] * len(askers) == [_told(asker) for asker in askers]

        cluster.until(agreed, "all brokers say the same", SECONDS)


def _told(asker: Asker) -> list[tuple[Any, ...]]:
    answer = asker.ask("Metadata", 5, {"topics": None})
    return sorted(
        (
            topic.name,
            one.partition_index,
            one.error_code,
            one.leader_id,
            tuple(one.replica_nodes),
            sorted(one.isr_nodes),
        )
        for topic in answer.topics
        for one in topic.partitions
    )
