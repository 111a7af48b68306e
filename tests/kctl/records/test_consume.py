from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
import zlib
from collections.abc import Callable

import confluent_kafka
import pytest

from kctl.records.partitioning import partition_of_key, partitions_of_key
from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl
from tests.kctl.records.conftest import WAIT, Feed, NewTopic

pytestmark = pytest.mark.timeout(600)

START = 1763703000000


@pytest.fixture
def orders(on_broker: Kctl, topic: NewTopic, feed: Feed) -> str:
    """120 records of three partitions, one a second, their offsets in the same order."""
    name = topic(3)
    lines = [
        json.dumps(
            {
                "key": f"user-{number % 10}",
                "value": json.dumps({"amount": number, "name": f"n{number}"}),
                "headers": [{"key": "type", "value": "big" if number >= 100 else "small"}],
                "partition": number % 3,
                "timestamp_ms": START + number * 1000,
            }
        )
        for number in range(120)
    ]
    feed("\n".join(lines))
    assert on_broker("produce", name, "--json", "--keep-partition").code == 0
    return name


def amounts(text: str) -> list[int]:
    return sorted(json.loads(line)["amount"] for line in text.splitlines())


EVERYTHING = list(range(120))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], EVERYTHING),
        (["--from", "earliest"], EVERYTHING),
        (["--from", "latest"], []),
        (["--from", "38"], [114, 115, 116, 117, 118, 119]),
        (["--from", "-1"], [117, 118, 119]),
        (["--to", "2"], [0, 1, 2, 3, 4, 5]),
        (["--from", "1", "--to", "2"], [3, 4, 5]),
        (["--from", f"@{START + 115_000}"], [115, 116, 117, 118, 119]),
        (["--to", f"@{START + 3_000}"], [0, 1, 2]),
        (["--from", f"@{START + 500_000}"], []),
        (["--from", "@2025-11-21T05:31:50Z"], list(range(110, 120))),
        (["--partitions", "1", "--to", "2"], [1, 4]),
        (["--partitions", "0-1", "--from", "39"], [117, 118]),
        (["--last", "4"], [116, 117, 118, 119]),
        (["--last", "4", "--partitions", "0"], [108, 111, 114, 117]),
        (["--last", "1000"], EVERYTHING),
        (["--last", "2", "--header", "type=small"], [98, 99]),
        (["--key", "user-7", "--all-partitions"], list(range(7, 120, 10))),
        (["--key", "user-[12]"], sorted([*range(1, 120, 10), *range(2, 120, 10)])),
        (["--value", '*"n11?"*'], list(range(110, 120))),
        (["--header", "type=b*"], list(range(100, 120))),
        (["--grep", 'n5$|n6"'], [6]),
        (["--filter", "value.amount >= 118 or offset == 0"], [0, 1, 2, 118, 119]),
        (["--filter", f"timestamp < @{START + 2000}"], [0, 1]),
        (["--from", "0", "--filter", "partition == 2 and value.amount < 9"], [2, 5, 8]),
    ],
)
def test_ranges_and_filters(on_broker: Kctl, orders: str, words: list[str], expected: list[int]) -> None:
    ran = on_broker("consume", orders, *words)
    assert ran.code == 0
    assert amounts(ran.out) == expected


def test_last_is_in_the_order_of_time(on_broker: Kctl, orders: str) -> None:
    ran = on_broker("consume", orders, "--last", "5", "-f", "%T ")
    assert ran.out.split() == [str(START + number * 1000) for number in range(115, 120)]


def test_exact_key_is_looked_for_where_it_belongs(on_broker: Kctl, orders: str) -> None:
    ran = on_broker("consume", orders, "--key", "user-7")
    assert ran.err == (
        f"the key is looked for where producers put it by default: {orders}-0, {orders}-2\nsearched 80, matched 8\n"
    )
    ran = on_broker("consume", orders, "--key", "user-7", "--all-partitions")
    assert ran.err == "searched 120, matched 12\n"
    assert on_broker("consume", orders, "--key", "user-7", "-q").err == ""


def test_key_of_librdkafka_and_of_java_is_found_where_each_puts_it(
    broker: KafkadProcess, on_broker: Kctl, topic: NewTopic
) -> None:
    name = topic(12)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    keys = [f"key-{number}" for number in range(20)]
    for key in keys:
        producer.produce(name, key=key, value=f"c:{key}")
        assert on_broker("produce", name, "--key", key, "--value", f"java:{key}").code == 0
    producer.flush()
    for key in keys:
        ran = on_broker("consume", name, "--key", key)
        assert sorted(ran.out.split()) == [f"c:{key}", f"java:{key}"]
        assert "too" not in ran.err, "the others need not be read"
    java, c = partition_of_key(b"key-0", 12), zlib.crc32(b"key-0") % 12
    told = ", ".join(f"{name}-{number}" for number in sorted({java, c}))
    ran = on_broker("consume", name, "--key", "key-0", "--last", 5)
    assert ran.err.startswith(f"the key is looked for where producers put it by default: {told}\nsearched ")


def test_key_that_is_not_where_it_belongs_is_looked_for_everywhere(on_broker: Kctl, topic: NewTopic) -> None:
    """Its producer had its own partitioner, or the topic has grown since."""
    name = topic(12)
    (elsewhere, *_) = set(range(12)) - partitions_of_key(b"k", 12)
    assert on_broker("produce", name, "--key", "k", "--value", "found", "--partition", elsewhere).code == 0
    for words in ((), ("--last", 3), ("--from", "0")):
        ran = on_broker("consume", name, "--key", "k", *words)
        assert (ran.code, ran.out) == (0, "found\n")
        assert "it is not there: looking in the other 1" in ran.err
    ran = on_broker("consume", name, "--key", "absent", "--fail-empty")
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.endswith("searched 1, matched 0\n"), "all of them were read"


def test_count_and_limit_stop_early(on_broker: Kctl, orders: str) -> None:
    for words in (("-n", "7"), ("--limit", "7")):
        assert len(on_broker("consume", orders, *words).out.splitlines()) == 7
    ran = on_broker("consume", orders, "-n", "2", "--filter", "value.amount > 50", "--partitions", "0")
    assert amounts(ran.out) == [51, 54]
    assert ran.err.endswith("matched 2\n")


def test_nothing_found_is_an_error_only_if_asked_for(on_broker: Kctl, orders: str) -> None:
    assert on_broker("consume", orders, "--key", "nobody*").code == 0
    assert on_broker("consume", orders, "--key", "nobody*", "--fail-empty").code == 3
    assert on_broker("consume", orders, "--key", "user-1*", "--fail-empty").code == 0


def test_several_topics_and_one_that_is_not(on_broker: Kctl, orders: str, topic: NewTopic) -> None:
    other = topic(1)
    on_broker("produce", other, "--value", '{"amount": 500}')
    assert amounts(on_broker("consume", orders, other).out) == [*EVERYTHING, 500]
    ran = on_broker("consume", orders, "no-such-topic")
    assert ran.code == 3
    assert amounts(ran.out) == EVERYTHING
    assert "120 records were printed" in ran.err


def test_wide_table(on_broker: Kctl, topic: NewTopic, feed: Feed, approved: Callable[[str, str], None]) -> None:
    name = topic(2)
    records = [
        {"key": "order-1", "value": '{"amount": 12.5}', "headers": [{"key": "type", "value": "small"}]},
        {"key": "order-2", "value": None},
        {"key": {"base64": "/wA="}, "value": "a line\nand another", "headers": [{"key": "none", "value": None}]},
        {"value": "Käse"},
    ]
    feed("".join(json.dumps({"timestamp_ms": START + at, **record}) + "\n" for at, record in enumerate(records)))
    ran = on_broker("produce", name, "--json", "--partition", "1")
    approved("produce", ran.out.replace(name, "orders".ljust(len(name))))
    ran = on_broker("consume", name, "-o", "wide", "--utc")
    approved("consume-wide", ran.out.replace(name, "orders".ljust(len(name))))


def test_tables_and_csv(on_broker: Kctl, orders: str) -> None:
    ran = on_broker("consume", orders, "--last", "1", "-o", "wide", "--utc")
    assert ran.out.splitlines()[1].split()[1:6] == ["2", "39", "2025-11-21", "05:31:59.000", "user-9"]
    ran = on_broker("consume", orders, "--last", "1", "-o", "csv")
    (row,) = csv.DictReader(io.StringIO(ran.out))
    assert (row["offset"], row["key"], json.loads(row["value"])["amount"]) == ("39", "user-9", 119)
    assert json.loads(row["headers"]) == [{"key": "type", "value": "big"}]
    ran = on_broker("consume", orders, "--last", "1", "--columns", "offset,key", "--no-headers")
    assert ran.out.split() == ["39", "user-9"]


def test_deleted_and_compacted_offsets_are_passed_over(
    on_broker: Kctl, topic: NewTopic, feed: Feed, broker: KafkadProcess
) -> None:
    from tests.clients.probes import Asker

    name = topic(1)
    feed("".join(f"{number}\n" for number in range(10)))
    on_broker("produce", name)
    asker = Asker(broker.port)
    partitions = [{"partition_index": 0, "offset": 6}]
    asker.ask("DeleteRecords", 2, {"topics": [{"name": name, "partitions": partitions}], "timeout_ms": 10000})
    asker.client.close()
    assert on_broker("consume", name).out.split() == ["6", "7", "8", "9"]
    assert on_broker("consume", name, "--from", "2", "--to", "7").out.split() == ["6"]
    assert on_broker("consume", name, "--last", "8").out.split() == ["6", "7", "8", "9"]


@pytest.mark.parametrize("words", [[], ["--value", "v*"], ["--last", "7"], ["--committed"]])
def test_only_a_damaged_batch_is_left_out(on_broker: Kctl, damaged: str, words: list[str]) -> None:
    ran = on_broker("consume", damaged, *words)
    assert ran.out.split() == [f"value-{number}" for number in (0, 1, 3, 4, 5, 6, 7)]
    assert ran.code == 1
    assert ran.err.count(f"{damaged}-0 has a damaged batch at offset 2: its checksum does not fit") == 1


@pytest.mark.parametrize("batches", [1.5, 2, 3, 4])
def test_a_damaged_batch_takes_none_of_those_behind_it_along(
    broker: KafkadProcess, on_broker: Kctl, damaged: str, monkeypatch: pytest.MonkeyPatch, batches: float
) -> None:
    """Wherever in a response of so many batches it is: its header says that it goes on for ever."""
    log = next(broker.log_directory().glob(f"{damaged}-0/*.log"))
    data = bytearray(log.read_bytes())
    size = len(data) // 8
    data[2 * size + 23 : 2 * size + 27] = (2**31 - 1).to_bytes(4, "big")
    log.write_bytes(data)
    monkeypatch.setattr("kctl.records.searching._FEW_RECORDS_BYTES", int(batches * size))
    ran = on_broker("consume", damaged, "-n", "9")
    assert ran.out.split() == [f"value-{number}" for number in (0, 1, 3, 4, 5, 6, 7)]
    assert ran.err.count("has a damaged batch at offset 2: its checksum does not fit") == 1


def test_following_goes_on_with_what_comes(broker: KafkadProcess, on_broker: Kctl, orders: str) -> None:
    command = [sys.executable, "-m", "kctl", "-b", broker.bootstrap, "consume", orders, "--from", "-1", "--follow"]
    with subprocess.Popen(
        [*command, "-f", "%s\\n"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert amounts("".join(process.stdout.readline() for _ in range(3))) == [117, 118, 119]
        on_broker("produce", orders, "--value", '{"amount": 1000}')
        assert amounts(process.stdout.readline()) == [1000]
        os.kill(process.pid, 2)
        assert process.wait(WAIT) == 130
        assert process.stderr.read() == "interrupted: 4 records read\n"


def test_time_zone_of_times_is_local_unless_utc(on_broker: Kctl, orders: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = on_broker("consume", orders, "--from", "@2025-11-21T05:31:55", "--utc")
    assert amounts(ran.out) == [115, 116, 117, 118, 119]


def test_nobody_there(kctl: Kctl) -> None:
    ran = kctl("-b", "127.0.0.1:1", "consume", "t")
    assert ran.code == 4
    assert "Traceback" not in ran.err
