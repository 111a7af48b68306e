"""Records against three real brokers, compared with Kafka's own tools."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from kafkad.errors import ErrorCode
from tests.clients.asker import Plain
from tests.clients.probes import Asker
from tests.kctl.conftest import Kctl, Three
from tests.kctl.records.conftest import Feed, until
from tests.oracle.kafka import tool

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(600)]

SECONDS = 240


@pytest.fixture
def topic(three: Three, new_name: Callable[[], str]) -> Callable[..., str]:
    def make(partitions: int = 1, **configs: str) -> str:
        name = new_name()
        settings = [{"name": setting.replace("_", "."), "value": value} for setting, value in configs.items()]
        made = {
            "name": name, "num_partitions": partitions, "replication_factor": 3, "assignments": [], "configs": settings,
        }  # fmt: skip
        codes = [create(port, made) for port in three.ports]
        assert sorted(codes) == [ErrorCode.NONE, ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER]
        until(lambda: all(has_leaders(port, name) for port in three.ports))
        return name

    return make


def create(port: int, topic: Plain) -> int:
    asker = Asker(port)
    code: int = asker.ask("CreateTopics", 4, {"topics": [topic], "timeout_ms": 60000}).topics[0].error_code
    asker.client.close()
    return code


def has_leaders(port: int, name: str) -> bool:
    """As this broker knows; the others may be behind, or ahead."""
    asker = Asker(port)
    (topic,) = asker.ask("Metadata", 9, {"topics": [{"name": name}], "allow_auto_topic_creation": False}).topics
    asker.client.close()
    return bool(topic.partitions) and all(len(part.isr_nodes) == 3 for part in topic.partitions)


def kafka(three: Three, name: str, *words: str, stdin: str = "") -> str:
    done = subprocess.run(
        tool("3.9", name, "--bootstrap-server", three.bootstrap, *words),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def console_consumer(three: Three, topic: str, count: int, *words: str) -> list[str]:
    shown = [f"print.{what}=true" for what in ("partition", "offset", "timestamp", "headers", "key")]
    properties = [word for each in shown for word in ("--property", each)]
    options = ["--topic", topic, "--from-beginning", "--max-messages", str(count), *properties, *words]
    return kafka(three, "console-consumer", *options).splitlines()


def test_keys_go_where_the_console_producer_puts_them(
    three: Three, on_three: Kctl, topic: Callable[..., str], feed: Feed
) -> None:
    ours, theirs = topic(7), topic(7)
    keys = ["a", "é", "", "x" * 100, *(f"key-{number}" for number in range(200))]
    lines = "".join(f"{key}\tvalue\n" for key in keys)
    feed(lines)
    assert on_three("produce", ours, "--key-delimiter", "\\t").code == 0
    parse = ("--property", "parse.key=true", "--property", "key.separator=\t")
    kafka(three, "console-producer", "--topic", theirs, *parse, stdin=lines)

    def placed(name: str) -> list[str]:
        return sorted(on_three("consume", name, "-f", "%p %k\\n").out.splitlines())

    assert len(placed(ours)) == len(keys)
    assert placed(ours) == placed(theirs)


def test_console_consumer_reads_what_we_wrote(
    three: Three, on_three: Kctl, topic: Callable[..., str], feed: Feed
) -> None:
    name = topic(1)
    records = [
        {"key": f"k{number}", "value": f"v{number}", "timestamp_ms": 1763703000000 + number}
        | {"headers": [{"key": "h", "value": str(number)}, {"key": "none", "value": None}]}
        for number in range(5)
    ]
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        feed("".join(json.dumps(record) + "\n" for record in records))
        assert on_three("produce", name, "--json", "--compression", codec).code == 0
    expected = [
        f"CreateTime:{1763703000000 + number}\tPartition:0\tOffset:{5 * codec + number}\t"
        f"h:{number},none:null\tk{number}\tv{number}"
        for codec in range(5)
        for number in range(5)
    ]
    assert console_consumer(three, name, 25) == expected


def test_we_read_what_the_console_producer_wrote(three: Three, on_three: Kctl, topic: Callable[..., str]) -> None:
    name = topic(3)
    parse = [f"parse.{what}=true" for what in ("key", "headers")]
    properties = [word for each in parse for word in ("--property", each)]
    lines = "".join(f"a:{number},b:x\tkey-{number}\tvalue {number}\n" for number in range(50))
    kafka(three, "console-producer", "--topic", name, *properties, "--compression-codec", "zstd", stdin=lines)
    ran = on_three("consume", name, "-f", "%h\\t%k\\t%s\\n")
    assert sorted(line.replace("=", ":") for line in ran.out.splitlines()) == sorted(lines.splitlines())


def test_transactions_are_all_or_nothing(three: Three, on_three: Kctl, topic: Callable[..., str], feed: Feed) -> None:
    name = topic(2)
    words = ("produce", name, "--json", "--transactional-id", f"{name}-id", "--keep-partition")

    def lines(text: str, *bad: str) -> str:
        good = [json.dumps({"value": f"{text}-{number}", "partition": number % 2}) for number in range(10)]
        return "".join(f"{line}\n" for line in (*good, *bad))

    feed(lines("first"))
    assert on_three(*words).code == 0
    feed(lines("aborted", "no json"))
    ran = on_three(*words)
    assert ran.code == 1
    assert "line 11 of standard input is not JSON" in ran.err
    assert "nothing was sent: the transaction was aborted" in ran.err
    feed(lines("second"))
    assert on_three(*words).code == 0

    committed = sorted(f"{text}-{number}" for text in ("first", "second") for number in range(10))

    def seen() -> list[str]:
        values = sorted(on_three("consume", name, "--committed").out.split())
        assert set(values) <= set(committed), "what was aborted never shows"
        return values

    until(lambda: seen() == committed)  # Kafka answers the end of a transaction before it has written all markers
    theirs = console_consumer(three, name, 20, "--isolation-level", "read_committed")
    assert sorted(line.split("\t")[-1] for line in theirs) == committed
    everything = on_three("consume", name).out.split()
    assert {value.partition("-")[0] for value in everything} == {"first", "aborted", "second"}
    assert sorted(on_three("consume", name, "--committed", "--last", "20").out.split()) == committed


def test_open_transaction_hides_what_comes_after_it(three: Three, on_three: Kctl, topic: Callable[..., str]) -> None:
    name = topic(1)
    on_three("produce", name, "--value", "before")
    words = ["produce", name, "--transactional-id", f"{name}-open"]
    command = [sys.executable, "-m", "kctl", "-b", three.bootstrap, *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        process.stdin.write("open\n")
        process.stdin.flush()
        until(lambda: process.poll() is not None or "open" in on_three("consume", name).out)
        on_three("produce", name, "--value", "after")
        assert on_three("consume", name, "--committed").out.split() == ["before"]
        assert on_three("consume", name).out.split() == ["before", "open", "after"]
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 130
    until(lambda: on_three("consume", name, "--committed").out.split() == ["before", "after"])


def test_a_broker_that_dies_meanwhile_costs_nothing(
    three: Three, on_three: Kctl, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic(6, min_insync_replicas="2")
    command = [sys.executable, "-m", "kctl", "-b", three.bootstrap, "--timeout", "90s"]
    out = tmp_path / "out"
    with (
        out.open("w") as file,
        subprocess.Popen(
            [*command, "produce", name, "--partitioner", "round-robin"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        ) as producer,
        subprocess.Popen(
            [*command, "consume", name, "--follow", "--from", "earliest"], stdout=file, text=True
        ) as consumer,
    ):  # fmt: skip
        assert producer.stdin is not None

        def write(numbers: Iterable[int]) -> None:
            producer.stdin.write("".join(f"{number}\n" for number in numbers))
            producer.stdin.flush()

        write(range(3000))
        until(lambda: out.read_text().count("\n") == 3000)
        three.restart(1, kill=True, meanwhile=lambda: write(range(3000, 6000)))
        write(range(6000, 9000))
        producer.stdin.close()
        assert producer.wait(SECONDS) == 0, producer.stderr.read() if producer.stderr else ""
        until(lambda: out.read_text().count("\n") >= 9000)
        consumer.send_signal(signal.SIGINT)
        assert consumer.wait(SECONDS) == 130
    assert sorted(map(int, out.read_text().split())) == list(range(9000))
    assert sorted(map(int, on_three("consume", name).out.split())) == list(range(9000))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("range", "org.apache.kafka.clients.consumer.RangeAssignor"),
        ("sticky", "org.apache.kafka.clients.consumer.StickyAssignor"),
        ("cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"),
    ],
)
def test_a_group_of_javas_and_our_members(
    three: Three, on_three: Kctl, topic: Callable[..., str], tmp_path: Path, ours: str, theirs: str
) -> None:
    name = topic(4)
    one, two = tmp_path / "java", tmp_path / "kctl"
    strategy = f"partition.assignment.strategy={theirs}"
    words = ["--topic", name, "--group", name, "--from-beginning", "--consumer-property", strategy]
    java = tool("3.9", "console-consumer", "--bootstrap-server", three.bootstrap, *words)
    kctl = [sys.executable, "-m", "kctl", "-b", three.bootstrap, "consume", name, "--group", name, "--follow"]
    kctl += ["--from", "earliest", "--assignor", ours]
    sent = 0

    def send() -> None:
        nonlocal sent
        for partition in range(4):
            assert on_three("produce", name, "--value", str(sent), "--partition", str(partition)).code == 0
            sent += 1

    def after(file: Path, first: int) -> set[int]:
        """The partitions whose records, from that number on, came out there."""
        return {int(number) % 4 for number in file.read_text().split() if int(number) >= first}

    with one.open("w") as a, subprocess.Popen(java, stdout=a, stderr=subprocess.DEVNULL) as first:
        try:
            until(lambda: len(after(one, 0)) == 4, send)
            with two.open("w") as b, subprocess.Popen(kctl, stdout=b) as second:
                until(lambda: len(after(two, 0)) == 2, send)
                shared = sent
                until(lambda: len(after(one, shared)) == 2 and len(after(two, shared)) == 2, send)
                assert after(one, shared).isdisjoint(after(two, shared))
                first.terminate()  # it leaves, and ours leads from now on
                first.wait(SECONDS)
                alone = sent
                until(lambda: len(after(two, alone)) == 4, send)
                second.send_signal(signal.SIGINT)
                assert second.wait(SECONDS) == 130
        finally:
            first.kill()
    got = {int(number) for file in (one, two) for number in file.read_text().split()}
    assert got == set(range(max(got) + 1))
