from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition
from kafkad.wire.compression import CODEC_NAMES
from kctl.errors import failure
from kctl.records.partitioning import partition_of_key
from kctl.records.producer_transaction import Transaction
from tests.bench.figures import create, new_topic
from tests.broker import KafkadProcess
from tests.clients.probes import Asker
from tests.kctl.conftest import Kctl
from tests.kctl.records.conftest import WAIT, Feed, NewTopic

pytestmark = pytest.mark.timeout(600)  # brokers are paused and restarted, perhaps on a busy machine


def rows(kctl: Kctl, name: str, *options: object) -> list[str]:
    """`partition:key:value` of all records, in the order of partition and offset."""
    ran = kctl("consume", name, "-f", "%p:%k:%s\\n", *options)
    assert (ran.code, ran.err) == (0, "")
    return sorted(ran.out.splitlines(), key=lambda line: int(line.partition(":")[0]))


def test_lines_and_where_they_went(on_broker: Kctl, topic: NewTopic, feed: Feed) -> None:
    name = topic(1)
    feed("one\r\ntwo\n\nlast without an end")
    ran = on_broker("produce", name, "-o", "json")
    assert (ran.code, ran.err) == (0, "")
    assert json.loads(ran.out)["items"] == [
        {"topic": name, "partition": 0, "records": 4, "first_offset": 0, "last_offset": 3}
    ]
    assert rows(on_broker, name) == ["0::one", "0::two", "0::", "0::last without an end"]


def test_keys_go_where_java_puts_them(on_broker: Kctl, topic: NewTopic, feed: Feed) -> None:
    name = topic(4)
    keys = [f"key-{number}" for number in range(20)]
    feed("".join(f"{key}\tvalue of {key}\n" for key in keys))
    assert on_broker("produce", name, "--key-delimiter", "\\t").code == 0
    expected = {f"{partition_of_key(key.encode(), 4)}:{key}:value of {key}" for key in keys}
    assert set(rows(on_broker, name)) == expected


@pytest.mark.parametrize("codec", CODEC_NAMES)
@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_json_round_trip(on_broker: Kctl, topic: NewTopic, feed: Feed, codec: str, acks: str) -> None:
    name, copy = topic(3), topic(3)
    records = [
        {"key": "a", "value": "plain é", "headers": [{"key": "h", "value": "1"}, {"key": "h", "value": None}]},
        {"key": None, "value": {"base64": "/wD+"}, "headers": [{"key": "", "value": {"base64": "gA=="}}]},
        {"key": "gone", "value": None, "headers": []},
        {"key": "", "value": "", "headers": []},
    ]
    lines = [record | {"partition": at % 3, "timestamp_ms": 1763703000000 + at} for at, record in enumerate(records)]
    feed("".join(json.dumps(line) + "\n" for line in lines))
    assert on_broker("produce", name, "--json", "--keep-partition", "--compression", codec, "--acks", acks).code == 0
    first = on_broker("consume", name, "-o", "json")
    feed(first.out)
    assert on_broker("produce", copy, "--json", "--keep-partition", "--compression", codec).code == 0
    second = on_broker("consume", copy, "-o", "json")

    def told(text: str) -> list[dict[str, object]]:
        said = [json.loads(line) for line in text.splitlines()]
        return sorted(({**one, "topic": ""} for one in said), key=lambda one: one["timestamp_ms"])

    assert told(first.out) == told(second.out)
    kept = [{name: one[name] for name in line} for one, line in zip(told(first.out), lines, strict=True)]
    assert kept == lines


def test_options_for_all_records(on_broker: Kctl, topic: NewTopic) -> None:
    name = topic(3)
    words = ("--value", "v", "--key", "k", "--partition", "2", "--timestamp", "1763703000000")
    ran = on_broker("produce", name, *words, "--header", "a=1", "--header", "b", "--header", "c=")
    assert ran.code == 0
    assert on_broker("produce", name, "--key", "k", "--tombstone", "--partition", "2").code == 0
    ran = on_broker("consume", name, "-f", "%p %o %k %S %h %K\\n")
    assert ran.out == "2 0 k 1 a=1,b=NULL,c= 1\n2 1 k -1  1\n"
    assert on_broker("consume", name, "-n", "1", "-f", "%T").out == "1763703000000"


def test_formats_files_and_whole_ones(on_broker: Kctl, topic: NewTopic, tmp_path: Path) -> None:
    name = topic(1)
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"k1|v1\nk2|\n")
    two.write_bytes(b"k3|v|3\n")
    assert on_broker("produce", name, "-f", "%k|%s", "--file", one, "--file", two, "--empty-is-null").code == 0
    assert on_broker("produce", name, "--whole", "--file", one, "--key", "all").code == 0
    ran = on_broker("consume", name, "-f", "%k=%s(%S);")
    assert ran.out == "k1=v1(2);k2=(-1);k3=v|3(3);all=k1|v1\nk2|\n(10);"


def test_what_is_empty_is_null_wherever_it_comes_from(on_broker: Kctl, topic: NewTopic, feed: Feed) -> None:
    name = topic(1)
    assert on_broker("produce", name, "--key", "k", "--value", "").code == 0
    assert on_broker("produce", name, "--key", "k", "--value", "", "--empty-is-null").code == 0
    assert on_broker("produce", name, "--key", "", "--value", "v", "--empty-is-null").code == 0
    feed('{"key": "", "value": ""}\n')
    assert on_broker("produce", name, "--json", "--empty-is-null").code == 0
    read = [json.loads(line) for line in on_broker("consume", name, "-o", "json").out.splitlines()]
    assert [(row["key"], row["value"]) for row in read] == [("k", ""), ("k", None), (None, "v"), (None, None)]


def test_round_robin(on_broker: Kctl, topic: NewTopic, feed: Feed) -> None:
    name = topic(4)
    feed("".join(f"{number}\n" for number in range(8)))
    assert on_broker("produce", name, "--partitioner", "round-robin").code == 0
    assert rows(on_broker, name) == [f"{p}::{n}" for p in range(4) for n in (p, p + 4)]


def test_partitioner_of_ones_own(
    on_broker: Kctl, topic: NewTopic, feed: Feed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic(4)
    (tmp_path / "kctl_by_length.py").write_text("def choose(key, value, partitions):\n    return len(value) - 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    feed("a\nbb\nccc\n")
    assert on_broker("produce", name, "--partitioner", "kctl_by_length:choose").code == 0
    assert rows(on_broker, name) == ["0::a", "1::bb", "2::ccc"]


@pytest.mark.parametrize(
    ("line", "options", "text"),
    [
        ('{"valu": 1}', ["--json"], 'has a field "valu"'),
        ("no delimiter", ["--key-delimiter", ":"], "has no ':' between a key and a value"),
        ("no delimiter", ["-f", "%k:%s"], 'is not like "%k:%s"'),
        ('{"value": "x", "partition": 7}', ["--json", "--keep-partition"], "names partition 7; "),
        ('{"value": "x", "partition": -1}', ["--json", "--keep-partition"], "names partition -1; "),
        ('{"value": "x", "timestamp_ms": -2}', ["--json"], "has the time -2"),
        ('{"value": "x", "timestamp_ms": 9223372036854775808}', ["--json"], "has the time 9223372036854775808"),
        ("good:x" + "9" * 30, ["-f", "%k:x%T"], "has the time 9999"),
    ],
)
def test_bad_line_tells_its_number_and_what_was_sent(
    on_broker: Kctl, topic: NewTopic, feed: Feed, line: str, options: list[str], text: str
) -> None:
    name = topic(1)
    good = '{"value": "good"}' if "--json" in options else "good:x1"
    feed(f"{good}\n{good}\n{line}\n{good}\n")
    ran = on_broker("produce", name, *options)
    assert ran.code == 1
    assert f"error: line 3 of standard input {text}" in ran.err
    assert "before it 2 records were delivered" in ran.err
    assert len(rows(on_broker, name)) == 2


def test_too_large_records_are_told_and_the_others_sent(on_broker: Kctl, topic: NewTopic, feed: Feed) -> None:
    name = topic(1, max_message_bytes="2000")
    feed("small\n" + "x" * 3000 + "\n" + "y" * 900 + "\n" + "z" * 900 + "\nlast\n")
    ran = on_broker("produce", name)
    assert ran.code == 1
    refused = f"partition {name}-0 does not take the records: it takes 2,000 bytes at once (MESSAGE_TOO_LARGE)"
    assert f"error: 1 not delivered (line 2): {refused}" in ran.err
    assert re.search(rf"the record takes 3,0\d\d bytes: kctl .*configs set topic/{name} max.message.bytes=… ", ran.err)
    assert "--compression zstd" in ran.err and "--batch-size" not in ran.err
    assert "4 records were delivered" in ran.err
    assert [line[:6] for line in rows(on_broker, name)] == ["0::sma", "0::yyy", "0::zzz", "0::las"]


def test_of_a_record_that_is_larger_than_a_segment_that_setting_is_named(
    on_broker: Kctl, topic: NewTopic, feed: Feed
) -> None:
    name = topic(1, segment_bytes="2000")
    feed("small\n" + "x" * 3000 + "\n")
    ran = on_broker("produce", name)
    assert ran.code == 1
    refused = f"partition {name}-0 does not take the records: it takes 2,000 bytes at once (RECORD_LIST_TOO_LARGE)"
    assert f"error: 1 not delivered (line 2): {refused}" in ran.err
    assert f"configs set topic/{name} segment.bytes=… allows more" in ran.err and "max.message" not in ran.err


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["produce", "no-such-topic", "--value", "x"], 3, 'topic "no-such-topic" does not exist'),
        (["produce", "TOPIC", "--value", "x", "--partition", "5"], 3, "has no partition 5, only 0 to 1"),
        (["produce", "TOPIC", "--tombstone"], 2, "--tombstone needs --key"),
        (["produce", "TOPIC", "--idempotent", "--acks", "1", "--value", "x"], 2, "--idempotent needs --acks all"),
        (["produce", "TOPIC", "--json", "--whole"], 2, "only one of"),
        (["produce", "TOPIC", "--file", "/no/such/file"], 3, "/no/such/file"),
        (["produce", "TOPIC", "--batch-size", "huge", "--value", "x"], 2, "huge"),
        (["consume", "no-such-topic"], 3, 'topic "no-such-topic" does not exist'),
        (["consume"], 2, "no topic is named"),
        (
            ["consume", "TOPIC", "--sort", "offset"],
            2,
            "as they are read, in the order of their partition: leave out --sort",
        ),
        (["consume", "TOPIC", "--sort", "nosuch", "-o", "json"], 2, "leave out --sort"),
        (["consume", "TOPIC", "--partitions", "1,7"], 3, "has no partition 7, only 0 to 1"),
        (["consume", "TOPIC", "--from", "yesterday"], 2, '--from "yesterday" is not'),
        (["consume", "TOPIC", "--follow", "--to", "5"], 2, "--follow never ends"),
        (["consume", "TOPIC", "--last", "5", "--from", "3"], 2, "--last stands alone"),
        (["consume", "TOPIC", "-f", "%y"], 2, "%y is none of"),
        (["consume", "TOPIC", "--group", "g", "--last", "5"], 2, "leave out --partitions and --last"),
        (["consume", "TOPIC", "--group", "g", "--assignor", "best"], 2, 'there is no assignor "best"'),
    ],
)
def test_what_cannot_be(on_broker: Kctl, topic: NewTopic, words: list[str], code: int, text: str) -> None:
    name = topic(2)
    ran = on_broker(*[name if word == "TOPIC" else word for word in words])
    assert ran.code == code, ran.err
    assert text in ran.err
    assert "Traceback" not in ran.err


def test_slow_pipe_does_not_hold_back_a_record(broker: KafkadProcess, on_broker: Kctl, topic: NewTopic) -> None:
    name = topic(1)
    command = [sys.executable, "-m", "kctl", "-b", broker.bootstrap, "produce", name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        process.stdin.write("first\n")
        process.stdin.flush()
        ran = on_broker("consume", name, "--follow", "--from", "earliest", "-n", "1")
        assert ran.out == "first\n"
        assert process.poll() is None
        process.stdin.close()
        assert process.wait(WAIT) == 0


def test_interrupted_input_is_delivered_and_told(broker: KafkadProcess, on_broker: Kctl, topic: NewTopic) -> None:
    name = topic(1)
    command = [sys.executable, "-m", "kctl", "-b", broker.bootstrap, "produce", name]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write("first\n")
        process.stdin.flush()
        on_broker("consume", name, "--follow", "--from", "earliest", "-n", "1")
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(WAIT) == 130
        assert process.stderr.read().endswith("interrupted: 1 record was delivered\n")


def test_reader_that_goes_away_is_no_error(broker: KafkadProcess, on_broker: Kctl, topic: NewTopic, feed: Feed) -> None:
    name = topic(1)
    feed("x" * 1000 + "\n" + ("y" * 1000 + "\n") * 2000)
    assert on_broker("produce", name).code == 0
    command = [sys.executable, "-m", "kctl", "-b", broker.bootstrap, "consume", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "x" * 1000 + "\n"
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(WAIT) == 0


def test_broker_that_restarts_meanwhile_is_survived(tmp_path: Path, kctl: Kctl) -> None:
    with ExitStack() as stack:
        broker = stack.enter_context(KafkadProcess(tmp_path / "kafkad"))
        asker = Asker(broker.port)
        create(asker, new_topic("t"))
        asker.client.close()
        command = [sys.executable, "-m", "kctl", "-b", broker.bootstrap, "--timeout", "60s", "produce", "t"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None
            process.stdin.write("".join(f"{number}\n" for number in range(1000)))
            process.stdin.flush()
            kctl("-b", broker.bootstrap, "consume", "t", "--follow", "--from", "earliest", "-n", "1000")
            follow = [*command[:-2], "consume", "t", "--follow", "--from", "earliest", "-n", "3000", "--group", "g"]
            consumer = stack.enter_context(subprocess.Popen(follow, stdout=subprocess.PIPE, text=True))
            assert consumer.stdout is not None
            consumer.stdout.readline()
            broker.kill()
            process.stdin.write("".join(f"{number}\n" for number in range(1000, 2000)))
            process.stdin.flush()
            broker.start()
            kctl("-b", broker.bootstrap, "consume", "t", "--follow", "--from", "1000", "-n", "1000")
            broker.restart()
            process.stdin.write("".join(f"{number}\n" for number in range(2000, 3000)))
            process.stdin.close()
            assert process.wait(WAIT) == 0
            assert consumer.stdout.read().split() == [str(number) for number in range(1, 3000)]
            assert consumer.wait(WAIT) == 0
        ran = kctl("-b", broker.bootstrap, "consume", "t")
        assert ran.out.splitlines() == [str(number) for number in range(3000)]


@pytest.mark.parametrize(
    "words",
    [
        ["--value", "x", "--file", "lines"],
        ["--value", "x", "--json"],
        ["--value", "x", "--whole"],
        ["--value", "x", "--key", "a", "--tombstone"],
        ["--key", "a", "--tombstone", "--key-delimiter", ":"],
    ],
)
def test_one_record_of_the_command_line_excludes_lines(on_broker: Kctl, topic: NewTopic, words: list[str]) -> None:
    name = topic(1)
    assert on_broker("produce", name, *words).code == 2
    assert on_broker("consume", name).out == ""


def test_a_transaction_may_take_as_long_as_asked_for(on_broker: Kctl, topic: NewTopic) -> None:
    words = ("produce", topic(1), "--value", "x", "--transactional-id", "long")
    assert on_broker(*words, "--transaction-timeout", "10m").code == 0
    ran = on_broker(*words, "--transaction-timeout", "10h")
    assert (ran.code, "(INVALID_TRANSACTION_TIMEOUT)" in ran.err) == (1, True), ran.err


def test_a_transaction_that_took_too_long_says_so() -> None:
    now = 0.0
    transaction = Transaction(None, "id", lambda: now, timeout_ms=60_000)  # type: ignore[arg-type]
    transaction._ask = lambda *_: None  # type: ignore[assignment,method-assign]
    fenced = failure(ErrorCode.PRODUCER_FENCED, "x")
    transaction.add(TopicPartition("t", 0))
    now = 59.0
    assert transaction.explained(fenced).hints == fenced.hints
    now = 60.0
    [hint] = transaction.explained(fenced).hints
    assert "the transaction took longer than 1m00s" in hint
    other = failure(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "x")
    assert transaction.explained(other) is other


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "before it 2 records would have been delivered; nothing from it on"),
        (["--transactional-id", "t"], "nothing would have been sent: the transaction would have been aborted"),
    ],
)
def test_dry_run_does_not_say_that_anything_was_sent(
    on_broker: Kctl, topic: NewTopic, feed: Feed, words: list[str], told: str
) -> None:
    feed('{"value": "a"}\n{"value": "b"}\nno JSON\n')
    ran = on_broker("produce", topic(), "--dry-run", "--json", *words)
    assert (ran.code, told in ran.err) == (1, True), ran.err


def test_dry_run_sends_nothing(on_broker: Kctl, topic: NewTopic, feed: Feed) -> None:
    name = topic(2)
    feed("a\nb\n")
    ran = on_broker("produce", name, "--partitioner", "round-robin", "--dry-run", "-o", "json")
    assert (ran.code, ran.err) == (0, "dry run: nothing was sent\n")
    said = json.loads(ran.out)
    assert said["dry_run"] is True
    assert [(row["partition"], row["records"], row["first_offset"]) for row in said["items"]] == [
        (0, 1, None),
        (1, 1, None),
    ]
    assert on_broker("consume", name).out == ""
    assert on_broker("perf", "produce", "--dry-run").code == 2


def test_what_may_be_written_is_not_sent_again_without_idempotence(
    broker: KafkadProcess, on_broker: Kctl, topic: NewTopic
) -> None:
    name = topic(1)
    words = ("--timeout", "2s", "produce", name, "--acks", "1")
    with paused_after_the_first_record(broker, on_broker, name, *words) as process:
        assert process.wait(WAIT) == 1
        assert process.stderr is not None
        told = process.stderr.read()
    assert (
        f"1 not delivered (line 2): broker 127.0.0.1:{broker.port} did not answer in time; the records may be" in told
    )
    assert "1 record was delivered" in told


@pytest.mark.slow
def test_what_may_be_written_is_sent_again_with_idempotence_and_is_there_once(
    broker: KafkadProcess, on_broker: Kctl, topic: NewTopic
) -> None:
    name = topic(1)
    with paused_after_the_first_record(broker, on_broker, name, "--timeout", "5s", "produce", name) as process:
        time.sleep(7)  # past the time-out of the request, within that of the record
        os.kill(broker.pid, signal.SIGCONT)
        assert process.wait(WAIT) == 0
    assert on_broker("consume", name).out.split() == ["first", "second"]


@contextmanager
def paused_after_the_first_record(
    broker: KafkadProcess, on_broker: Kctl, name: str, *words: str
) -> Iterator[subprocess.Popen[str]]:
    """`produce`, with a second record sent to a broker that hears it but does not move."""
    command = [sys.executable, "-m", "kctl", "-b", broker.bootstrap, *words]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        process.stdin.write("first\n")
        process.stdin.flush()
        on_broker("consume", name, "--follow", "--from", "earliest", "-n", "1")
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            process.stdin.write("second\n")
            process.stdin.close()
            yield process
        finally:
            os.kill(broker.pid, signal.SIGCONT)


def test_file_that_cannot_be_read_is_told_with_what_was_sent(on_broker: Kctl, topic: NewTopic, tmp_path: Path) -> None:
    name, good = topic(1), tmp_path / "good"
    good.write_text("a\nb\n")
    ran = on_broker("produce", name, "--file", good, "--file", tmp_path)
    assert ran.code == 1
    assert f"error: {tmp_path}: Is a directory\n       before it 2 records were delivered" in ran.err
    assert on_broker("produce", name, "--file", good, "--file", tmp_path / "absent").code == 3
    assert on_broker("consume", name).out.split() == ["a", "b"]


def test_partitioner_that_goes_wrong_is_told_with_what_was_sent(
    on_broker: Kctl, topic: NewTopic, feed: Feed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic(2)
    (tmp_path / "kctl_too_far.py").write_text("def choose(key, value, partitions):\n    return int(value)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    feed("0\n1\n2\n1\n")
    ran = on_broker("produce", name, "--partitioner", "kctl_too_far:choose")
    assert ran.code == 1
    assert "partitioner kctl_too_far:choose returned 2, but the topic has partitions 0 to 1" in ran.err
    assert "before it 2 records were delivered" in ran.err


@pytest.mark.parametrize(
    "words",
    [["produce", "TOPIC", "--value", "x"], ["copy", "TOPIC", "TOPIC-2"], ["perf", "produce"], ["perf", "latency"]],
)
def test_protected_cluster_is_not_written_to_unless_its_name_is_typed(
    on_broker: Kctl, topic: NewTopic, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    name, other = topic(1), topic(1)
    monkeypatch.setenv("KCTL_PROTECTED", "true")
    ran = on_broker("-y", *[{"TOPIC": name, "TOPIC-2": other}.get(word, word) for word in words])
    assert ran.code == 6
    assert "protected" in ran.err
    assert on_broker("consume", name, other).out == ""
