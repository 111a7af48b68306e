from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafkad.names import TopicPartition
from kctl.errors import KctlError
from tests.bench.figures import create, new_topic
from tests.broker import KafkadProcess
from tests.clients.probes import Asker
from tests.kctl.conftest import Kctl, Ran
from tests.kctl.records.conftest import Feed, NewTopic


@pytest.fixture
def source(on_broker: Kctl, topic: NewTopic, feed: Feed) -> str:
    name = topic(3)
    records = [
        {"key": None if number % 5 == 0 else f"k{number}", "value": None if number % 7 == 0 else {"base64": "/w=="}}
        | {"headers": [{"key": "n", "value": str(number)}], "timestamp_ms": 1763703000000 + number}
        | {"partition": number % 3}
        for number in range(30)
    ]
    feed("".join(json.dumps(record) + "\n" for record in records))
    assert on_broker("produce", name, "--json", "--keep-partition").code == 0
    return name


def records(kctl: Kctl, name: str, *without: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in kctl("consume", name, "-o", "json").out.splitlines()]
    for one in found:
        for field in ("topic", *without):
            del one[field]
    return sorted(found, key=lambda one: one["timestamp_ms"])


def test_everything_stays(on_broker: Kctl, source: str, topic: NewTopic) -> None:
    target = topic(3)
    ran = on_broker("copy", source, target, "--keep-partition", "--compression", "zstd", "-o", "json")
    assert ran.code == 0, ran.err
    assert [row["records"] for row in json.loads(ran.out)["items"]] == [10, 10, 10]
    assert records(on_broker, target) == records(on_broker, source)


def test_keys_decide_in_another_number_of_partitions(on_broker: Kctl, source: str, topic: NewTopic) -> None:
    target, again = topic(5), topic(5)
    assert on_broker("copy", source, target).code == 0
    assert records(on_broker, target, "partition", "offset") == records(on_broker, source, "partition", "offset")
    assert on_broker("copy", source, again).code == 0
    keyed = [[r for r in records(on_broker, name, "offset") if r["key"]] for name in (target, again)]
    assert keyed[0] == keyed[1]


def test_part_of_it(on_broker: Kctl, source: str, topic: NewTopic) -> None:
    target = topic(1)
    ran = on_broker("copy", source, target, "--filter", "headers.n == '3' or headers.n == '4'", "--from", "1")
    assert (ran.code, ran.err) == (0, "searched 27, matched 2\n")
    assert [one["headers"][0]["value"] for one in records(on_broker, target)] == ["3", "4"]


def test_to_another_cluster(
    on_broker: Kctl, kctl: Kctl, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with KafkadProcess(tmp_path / "other") as other:
        asker = Asker(other.port)
        create(asker, new_topic(source, 3))
        asker.client.close()
        contexts = tmp_path / "contexts.yaml"
        contexts.write_text(f"contexts:\n  other:\n    bootstrap: {other.bootstrap}\n")
        contexts.chmod(0o600)
        monkeypatch.setenv("KCTL_CONFIG", str(contexts))
        ran = on_broker("copy", source, source, "--to-context", "other", "--keep-partition")
        assert ran.code == 0, ran.err
        there = records(lambda *words: kctl("-b", other.bootstrap, *words), source)
        assert there == records(on_broker, source)


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["SOURCE", "SOURCE"], 2, "the same topic"),
        (["SOURCE", "no-such-topic"], 3, '"no-such-topic" does not exist'),
        (["no-such-topic", "SOURCE"], 3, '"no-such-topic" does not exist'),
        (["SOURCE", "SMALL", "--keep-partition"], 1, "names partition "),
        (["SOURCE", "SMALL", "--partitioner", "kctl.texts.scopes:parse_numbers"], 1, "failed with TypeError"),
    ],
)
def test_what_cannot_be(on_broker: Kctl, source: str, topic: NewTopic, words: list[str], code: int, text: str) -> None:
    small = topic(1)
    ran = on_broker("copy", *[{"SOURCE": source, "SMALL": small}.get(word, word) for word in words])
    assert ran.code == code
    assert text in ran.err


@pytest.fixture
def other(broker: KafkadProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A context of the same broker."""
    contexts = tmp_path / "contexts.yaml"
    contexts.write_text(f"contexts:\n  other:\n    bootstrap: {broker.bootstrap}\n")
    contexts.chmod(0o600)
    monkeypatch.setenv("KCTL_CONFIG", str(contexts))
    return "other"


def hints(ran: Ran) -> list[str]:
    """Those for programs, which are those for people too."""
    found = [hint for error in json.loads(ran.out)["errors"] for hint in error["hints"]]
    assert found == [line.strip() for line in ran.err.splitlines() if not line.startswith("error: ")]
    return found


def test_a_refusal_at_the_target_names_the_target(on_broker: Kctl, source: str, topic: NewTopic, other: str) -> None:
    small = topic(1, **{"max.message.bytes": "70"})
    ran = on_broker("copy", source, small, "--to-context", other, "-o", "json")
    assert (ran.code, len(json.loads(ran.out)["errors"])) == (1, 1)
    assert f" bytes: kctl -c other configs set topic/{small} max.message.bytes=… allows more" in hints(ran)[0]


def test_what_cannot_be_read_names_the_source(
    broker: KafkadProcess, on_broker: Kctl, source: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = KctlError("it has no leader", hints=("kctl topics describe",))
    monkeypatch.setattr("kctl.records.copy.spans", lambda *_: ({}, {TopicPartition(source, 0): error}))
    ran = on_broker("copy", source, source, "--to-context", other, "-o", "json")
    assert hints(ran) == [f"kctl -b {broker.bootstrap} topics describe", "0 records were delivered"]


def test_aborted_records_are_copied_only_if_asked_for(on_broker: Kctl, topic: NewTopic, feed: Feed) -> None:
    source, target, everything = topic(), topic(), topic()
    feed('{"value": "never happened"}\nbroken\n')
    assert on_broker("produce", source, "--json", "--transactional-id", f"{source}-id").code == 1
    assert on_broker("produce", source, "--value", "good").code == 0
    assert on_broker("copy", source, target).code == 0
    assert on_broker("topics", "clone", source, f"{source}-clone", "--data").code == 0
    for copied in (target, f"{source}-clone"):
        assert on_broker("consume", copied).out == "good\n"
    assert on_broker("copy", source, everything, "--uncommitted").code == 0
    assert on_broker("consume", everything).out == "never happened\ngood\n"


def test_only_a_damaged_batch_is_not_copied(on_broker: Kctl, damaged: str, topic: NewTopic) -> None:
    target = topic()
    ran = on_broker("copy", damaged, target)
    assert ran.code == 1
    assert "has a damaged batch at offset 2" in ran.err
    assert on_broker("consume", target).out.split() == [f"value-{number}" for number in (0, 1, 3, 4, 5, 6, 7)]


def test_a_transaction_copies_nothing_if_a_partition_cannot_be_read(
    broker: KafkadProcess, on_broker: Kctl, topic: NewTopic
) -> None:
    source, target = topic(2), topic(2)
    for partition in (0, 1):
        assert on_broker("produce", source, "--value", "x", "--partition", partition).code == 0
    [log] = (broker.log_dirs[0] / f"{source}-1").glob("*.log")
    data = bytearray(log.read_bytes())
    data[-3] ^= 0xFF
    log.write_bytes(data)
    ran = on_broker("copy", source, target, "--keep-partition", "--transactional-id", f"{source}-id")
    assert (ran.code, "nothing was sent: the transaction was aborted" in ran.err, ran.out) == (1, True, "")
    assert on_broker("consume", target, "--committed").out == ""
