"""One session at the command line with Kafka's own tools, to be had with any broker and compared."""

# ruff: noqa: E501 - one command a line
from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.oracle.kafka import tool

SECONDS = 180
"""For one command on a busy machine."""


@dataclass(frozen=True, slots=True)
class Step:
    """One command. `{bootstrap}` in its words is the address, put in front when it stands nowhere; `{dir}` is a
    directory with the files that `write_files` makes."""

    name: str
    tool: str
    words: str
    stdin: str = ""

    def arguments(self, bootstrap: str, directory: Path) -> list[str]:
        words = self.words if "{bootstrap}" in self.words else f"--bootstrap-server {{bootstrap}} {self.words}"
        return words.format(bootstrap=bootstrap, dir=directory).split()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The output that a user saw, without what differs from one run to the next."""

    status: int
    stdout: str
    stderr: str


TOPICS = [
    Step("create a topic", "topics", "--create --topic t1 --partitions 3 --replication-factor 1 --config retention.ms=99000"),
    Step("create it again", "topics", "--create --topic t1 --partitions 3"),
    Step("create it if it is not there", "topics", "--create --if-not-exists --topic t1"),
    Step("create with a manual assignment", "topics", "--create --topic t2 --replica-assignment 1,1"),
    Step("create with the defaults", "topics", "--create --topic t.3_x"),
    Step("create with a bad name", "topics", "--create --topic a/b"),
    Step("create with a bad config", "topics", "--create --topic t4 --config retention.ms=soon"),
    Step("create with an unknown config", "topics", "--create --topic t4 --config no.such=1"),
    Step("create with too many replicas", "topics", "--create --topic t4 --replication-factor 3"),
    Step("create without partitions", "topics", "--create --topic t4 --partitions 0"),
    Step("list topics", "topics", "--list"),
    Step("describe a topic", "topics", "--describe --topic t1"),
    Step("describe all topics", "topics", "--describe"),
    Step("describe a topic that is not there", "topics", "--describe --topic nowhere"),
    Step("describe topics with overrides", "topics", "--describe --topics-with-overrides"),
    Step("describe under-replicated partitions", "topics", "--describe --under-replicated-partitions"),
    Step("describe unavailable partitions", "topics", "--describe --unavailable-partitions"),
    Step("describe partitions at min ISR", "topics", "--describe --at-min-isr-partitions"),
    Step("add partitions", "topics", "--alter --topic t1 --partitions 5"),
    Step("take partitions away", "topics", "--alter --topic t1 --partitions 2"),
    Step("describe after adding", "topics", "--describe --topic t1"),
    Step("delete a topic", "topics", "--delete --topic t2"),
    Step("delete a topic that is not there", "topics", "--delete --topic nowhere"),
    Step("delete a topic if it is there", "topics", "--delete --if-exists --topic nowhere"),
    Step("list after deleting", "topics", "--list"),
]  # fmt: skip

TOPIC = "--entity-type topics --entity-name t1"
BROKER = "--entity-type brokers --entity-name 1"
BROKERS = "--entity-type brokers --entity-default"
CONFIGS = [
    Step("describe topic configs", "configs", f"--describe {TOPIC}"),
    Step("describe all topic configs", "configs", f"--describe --all {TOPIC}"),
    Step("add topic configs", "configs", f"--alter {TOPIC} --add-config segment.bytes=1048576,cleanup.policy=[compact,delete]"),
    Step("describe added topic configs", "configs", f"--describe {TOPIC}"),
    Step("delete topic configs", "configs", f"--alter {TOPIC} --delete-config retention.ms,cleanup.policy"),
    Step("describe what is left", "configs", f"--describe {TOPIC}"),
    Step("add an unknown topic config", "configs", f"--alter {TOPIC} --add-config no.such=1"),
    Step("add a bad topic config", "configs", f"--alter {TOPIC} --add-config retention.ms=soon"),
    Step("alter a topic that is not there", "configs", "--alter --entity-type topics --entity-name nowhere --add-config retention.ms=1"),
    Step("describe configs of all topics", "configs", "--describe --entity-type topics"),
    Step("alter a broker config", "configs", f"--alter {BROKER} --add-config log.cleaner.threads=2"),
    Step("describe broker configs", "configs", f"--describe {BROKER}"),
    Step("alter the brokers' default", "configs", f"--alter {BROKERS} --add-config message.max.bytes=1048999"),
    Step("describe the brokers' default", "configs", f"--describe {BROKERS}"),
    Step("describe broker and default", "configs", f"--describe {BROKER}"),
    Step("describe a topic under a broker default", "configs", f"--describe --all {TOPIC}"),
    Step("alter a read-only broker config", "configs", f"--alter {BROKER} --add-config broker.id=2"),
    Step("alter a broker config badly", "configs", f"--alter {BROKER} --add-config log.cleaner.threads=none"),
    Step("delete the brokers' default", "configs", f"--alter {BROKERS} --delete-config message.max.bytes"),
    Step("delete a broker config", "configs", f"--alter {BROKER} --delete-config log.cleaner.threads"),
    Step("describe broker configs at the end", "configs", f"--describe {BROKER}"),
]  # fmt: skip

LINES = "".join(f"k{i}:value {i}\n" for i in range(20))
RECORDS = [
    Step("create a topic for records", "topics", "--create --topic r1 --partitions 2"),
    Step("create a topic of one partition", "topics", "--create --topic r2 --partitions 1"),
    Step("produce with keys", "console-producer", "--topic r1 --property parse.key=true --property key.separator=:", LINES),
    Step("produce with zstd", "console-producer", "--topic r2 --compression-codec zstd", "a\nb\nc\n"),
    Step("produce without idempotence", "console-producer", "--topic r2 --producer-property enable.idempotence=false "
         "--request-required-acks 1", "d\n"),
    Step("consume a partition", "console-consumer", "--topic r1 --partition 0 --offset earliest --max-messages 7 "
         "--property print.key=true --property print.offset=true --property print.headers=true --timeout-ms 20000"),
    Step("consume from an offset", "console-consumer", "--topic r2 --partition 0 --offset 1 --max-messages 3 "
         "--property print.partition=true --timeout-ms 20000"),
    Step("consume what is committed", "console-consumer", "--topic r2 --partition 0 --offset earliest --max-messages 4 "
         "--isolation-level read_committed --timeout-ms 20000"),
    Step("latest offsets", "get-offsets", "--topic r1"),
    Step("earliest offsets", "get-offsets", "--topic r1 --time earliest"),
    Step("offset of the newest record", "get-offsets", "--topic r2 --time max-timestamp"),
    Step("offset of the newest record of none", "get-offsets", "--topic t1 --time max-timestamp"),
    Step("offsets by time, later than all", "get-offsets", "--topic r1 --time 4102444800000"),
    Step("offsets by time, before all", "get-offsets", "--topic r1 --time 1000"),
    Step("offsets of some partitions", "get-offsets", "--topic-partitions r1:0,r1:1,nowhere:0"),
    Step("offsets of topics by pattern", "get-offsets", "--topic r.*"),
    Step("delete records", "delete-records", "--offset-json-file {dir}/delete.json"),
    Step("delete records beyond the end", "delete-records", "--offset-json-file {dir}/delete-beyond.json"),
    Step("earliest offsets after deleting", "get-offsets", "--topic r1 --time earliest"),
    Step("log directories", "log-dirs", "--describe --topic-list r1,t1"),
    Step("log directories of a broker that is not there", "log-dirs", "--describe --broker-list 7"),
    Step("producer perf", "producer-perf", "--topic r2 --num-records 2000 --record-size 100 --throughput -1 "
         "--producer-props bootstrap.servers={bootstrap} acks=all compression.type=lz4"),
    Step("verifiable producer", "verifiable-producer", "--topic r2 --max-messages 5 --acks -1"),
    Step("producers of a partition", "transactions", "--bootstrap-server {bootstrap} describe-producers --topic r1 --partition 0"),
]  # fmt: skip

CLUSTER = [
    Step("cluster id", "cluster", "cluster-id --bootstrap-server {bootstrap}"),
    Step("elect preferred leaders", "leader-election", "--election-type preferred --all-topic-partitions"),
    Step("elect a preferred leader", "leader-election", "--election-type preferred --topic r1 --partition 0"),
    Step("elect a leader uncleanly", "leader-election", "--election-type unclean --topic r1 --partition 0"),
    Step("elect for a topic that is not there", "leader-election", "--election-type preferred --topic nowhere --partition 0"),
    Step("propose a reassignment", "reassign-partitions", "--generate --topics-to-move-json-file {dir}/topics.json --broker-list 1"),
    Step("execute a reassignment", "reassign-partitions", "--execute --reassignment-json-file {dir}/reassign.json"),
    Step("verify a reassignment", "reassign-partitions", "--verify --reassignment-json-file {dir}/reassign.json"),
    Step("list reassignments", "reassign-partitions", "--list"),
    Step("cancel a reassignment", "reassign-partitions", "--cancel --reassignment-json-file {dir}/reassign.json"),
    Step("reassign to a broker that is not there", "reassign-partitions", "--execute --reassignment-json-file {dir}/reassign-7.json"),
]  # fmt: skip

SESSION = [*TOPICS, *CONFIGS, *RECORDS, *CLUSTER]


def write_files(directory: Path) -> None:
    partition = '{"topic":"r1","partition":0,%s}'
    files = {
        "delete.json": '{"partitions":[%s],"version":1}' % (partition % '"offset":3'),
        "delete-beyond.json": '{"partitions":[%s],"version":1}' % (partition % '"offset":300'),
        "topics.json": '{"topics":[{"topic":"r1"}],"version":1}',
        "reassign.json": '{"version":1,"partitions":[%s]}' % (partition % '"replicas":[1],"log_dirs":["any"]'),
        "reassign-7.json": '{"version":1,"partitions":[%s]}' % (partition % '"replicas":[7],"log_dirs":["any"]'),
    }
    for name, text in files.items():
        (directory / name).write_text(text)


def run(step: Step, version: str, bootstrap: str, directory: Path) -> Outcome:
    """In a process of its own, as users do."""
    command = tool(version, step.tool, *step.arguments(bootstrap, directory))
    done = subprocess.run(command, input=step.stdin, capture_output=True, text=True, timeout=SECONDS, check=False)
    return Outcome(done.returncode, normalised(done.stdout), normalised(done.stderr))


Run = Callable[[Step, str, Path], Outcome]
"""A step at the broker of this address, with this directory."""


def run_session(run: Run, bootstrap: str, directory: Path) -> dict[str, Outcome]:
    write_files(directory)
    return {step.name: run(step, bootstrap, directory) for step in SESSION}


NORMAL = [
    (re.compile(r"\badminclient-\d+"), "adminclient-1"),  # each JVM counts its clients
    # A broker that answers DescribeTopicPartitions has an (empty) list where Kafka 3.9 with ZooKeeper has nothing to say.
    (re.compile(r"Elr: (N/A)?\tLastKnownElr:( N/A)?"), "Elr: NONE"),
    (re.compile(r"^  kafkad\..*\n", re.M), ""),
    (re.compile(r"127\.0\.0\.1:\d+"), "HOST:PORT"),
    (re.compile(r"TopicId: [\w-]{22}"), "TopicId: ID"),
    (re.compile(r"Cluster ID: [\w-]{22}"), "Cluster ID: ID"),
    (re.compile(r'"logDir":"[^"]*"'), '"logDir":"DIRECTORY"'),
    (re.compile(r'(?<=[\[,])"/[^"]*"'), '"DIRECTORY"'),
    (re.compile(r'"size":[1-9]\d*'), '"size":SIZE'),
    (re.compile(r"\b1[78]\d{11}\b"), "TIME"),
    (re.compile(r'"avg_throughput":[\d.]+'), '"avg_throughput":NUMBER'),
    (re.compile(r"[\d.]+ records/sec.*"), "NUMBERS"),
    (re.compile(r"[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}"), "UUID"),
    (re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}, .*", re.M), "NUMBERS"),
]
STACK = re.compile(r"^\s+(at |\.\.\. \d+ more)")


def ordered(line: str) -> str:
    """Of a JSON object: some tools write its fields in the order in which the JVM happens to list their methods."""
    try:
        return json.dumps(json.loads(line), sort_keys=True, separators=(",", ":")) if line.startswith("{") else line
    except ValueError:
        return line


def normalised(text: str) -> str:
    text = "\n".join(map(ordered, text.split("\n")))
    for pattern, instead in NORMAL:
        text = pattern.sub(instead, text)
    return "\n".join(line.rstrip() for line in text.splitlines() if not STACK.match(line))
