from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkad.names import TopicPartition
from kctl.errors import Exit, KctlError
from kctl.partitions.reassignment_json import (
    Place,
    Plan,
    parse_assignment,
    parse_partition,
    parse_partitions,
    parse_plan,
    parse_topics,
    render_plan,
)

ENTRY = {"topic": "t", "partition": 0, "replicas": [1, 2]}


def of(*entries: object, **others: object) -> str:
    return json.dumps({"version": 1, "partitions": list(entries)} | others)


places = st.dictionaries(
    st.builds(TopicPartition, st.text("ab.é", min_size=1), st.integers(0, 2**31 - 1)),
    st.lists(st.integers(0, 99), unique=True, min_size=1).flatmap(
        lambda replicas: st.builds(
            Place,
            st.just(tuple(replicas)),
            st.just(()) | st.tuples(*(st.sampled_from(["any", "/data/1"]) for _ in replicas)),
        )
    ),
    min_size=1,
)


@given(places, st.none() | st.text("abc", min_size=1))
def test_what_is_written_is_read(places: dict[TopicPartition, Place], cluster_id: str | None) -> None:
    assert parse_plan(render_plan(places, cluster_id), "f") == Plan(places, cluster_id)


def test_kafkas_own_line_is_read() -> None:
    """As kafka-reassign-partitions --generate prints it."""
    text = '{"version":1,"partitions":[{"topic":"a-b","partition":3,"replicas":[2,1],"log_dirs":["any","/data/x"]}]}'
    plan = parse_plan(text, "f")
    assert plan == Plan({TopicPartition("a-b", 3): Place((2, 1), ("any", "/data/x"))})
    assert plan.places["a-b", 3].directories() == {1: "/data/x"}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "f is not JSON: Expecting value: line 1 column 1 (char 0)"),
        ('{"version": 1,\n "partitions": [}', "f is not JSON: Expecting value: line 2 column 17 (char 31)"),
        ("[]", "f: it is not a JSON object"),
        ('{"version": 2}', "f: its version is 2; only version 1 is known"),
        ('{"version": 1}', 'f: it has no "partitions"'),
        (of(), 'f: "partitions" is empty'),
        (of(ENTRY, 7), 'f: entry 2 of "partitions" is not an object'),
        (of(ENTRY, ENTRY), 'f: entry 2 of "partitions": t-0 is there twice'),
        (of({"partition": 0}), 'f: entry 1 of "partitions": it has no "topic"'),
        (of(ENTRY | {"topic": 1}), 'f: entry 1 of "partitions": "topic" is 1, which is not a string'),
        (of(ENTRY | {"partition": "0"}), 'f: entry 1 of "partitions": "partition" is \'0\', which is not a number'),
        (of(ENTRY | {"partition": True}), 'f: entry 1 of "partitions": "partition" is True, which is not a number'),
        (of(ENTRY | {"partition": -1}), 'f: entry 1 of "partitions": "partition" is -1'),
        (of(ENTRY | {"partition": 2**31}), f'f: entry 1 of "partitions": "partition" is {2**31}'),
        (
            of(ENTRY | {"replicas": [2**31]}),
            f'f: entry 1 of "partitions" (t-0): "replicas" has {2**31}, which is not the id of a broker',
        ),
        (of(ENTRY | {"replicas": []}), 'f: entry 1 of "partitions" (t-0): it has no replicas'),
        (
            of(ENTRY | {"replicas": [1, 2, 1]}),
            'f: entry 1 of "partitions" (t-0): broker 1 is among the replicas twice',
        ),
        (
            of(ENTRY | {"replicas": [1, "2"]}),
            'f: entry 1 of "partitions" (t-0): "replicas" has \'2\', which is not the id of a broker',
        ),
        (
            of(ENTRY | {"log_dirs": ["any"]}),
            'f: entry 1 of "partitions" (t-0): "log_dirs" has 1 entries for 2 replicas',
        ),
        (
            of(ENTRY | {"log_dirs": ["any", "data"]}),
            'f: entry 1 of "partitions" (t-0): "log_dirs" has \'data\', which is neither an absolute path nor "any"',
        ),
    ],
)
def test_a_malformed_plan_names_what_is_wrong_and_where(text: str, what: str) -> None:
    with pytest.raises(KctlError) as failed:
        parse_plan(text, "f")
    assert (failed.value.what, failed.value.exit_code) == (what, Exit.USAGE)


def test_a_number_of_more_digits_than_python_reads() -> None:
    with pytest.raises(KctlError, match="f is not JSON: a number in it has thousands of digits"):
        parse_plan(of(ENTRY).replace('"partition": 0', f'"partition": {"9" * 5000}'), "f")


def test_topics_come_from_either_kind_of_file() -> None:
    assert parse_topics('{"version": 1, "topics": [{"topic": "b"}, {"topic": "a"}]}', "f") == ["b", "a"]
    assert parse_topics(of(ENTRY, ENTRY | {"partition": 1}), "f") == ["t"]
    with pytest.raises(KctlError, match='entry 2 of "topics": topic b is there twice'):
        parse_topics('{"topics": [{"topic": "b"}, {"topic": "b"}]}', "f")


def test_partitions_come_from_an_election_file() -> None:
    """Kafka's has no version and no replicas."""
    assert parse_partitions('{"partitions": [{"topic": "t", "partition": 1}]}', "f") == [("t", 1)]


@pytest.mark.parametrize(("word", "partition"), [("a:0", ("a", 0)), ("a-b-12", ("a-b", 12)), ("a-1:2", ("a-1", 2))])
def test_a_partition_in_a_word(word: str, partition: tuple[str, int]) -> None:
    assert parse_partition(word) == partition


@pytest.mark.parametrize("word", ["a", "a:", ":1", "a:x", "a:-1", "a-²", "a:2147483648"])
def test_what_is_no_partition(word: str) -> None:
    with pytest.raises(ValueError, match="is not TOPIC:PARTITION"):
        parse_partition(word)


def test_an_assignment_in_a_word() -> None:
    assert parse_assignment("t:0=1,2,3") == (("t", 0), Place((1, 2, 3)))


@pytest.mark.parametrize("word", ["t:0", "t=1", "t:0=", "t:0=1,x", "t:0=1,1", "t:0=1,-2", "t:0=2147483648"])
def test_what_is_no_assignment(word: str) -> None:
    with pytest.raises(KctlError) as failed:
        parse_assignment(word)
    assert failed.value.exit_code == Exit.USAGE
