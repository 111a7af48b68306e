from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkad.names import TopicPartition
from kctl.errors import KctlError
from kctl.partitions.throttle_settings import (
    BROKER,
    DIRECTORY_RATE,
    LISTS,
    RATES,
    TOPIC,
    Setting,
    Throttle,
    Transfer,
    left_over,
    lists,
    parse_state,
    rates,
    render_state,
    united,
    way_back,
    without,
)
from tests.work import is_linear

LEADERS, FOLLOWERS = LISTS
COPY = Transfer(TopicPartition("t", 0), (3, 2), (1,))
SECOND = Transfer(TopicPartition("t", 11), (2,), (4, 1))
ORDER_ONLY = Transfer(TopicPartition("u", 0), (5, 6), ())


def test_only_brokers_that_copy_get_a_rate() -> None:
    found = rates([COPY, ORDER_ONLY], 50_000_000)
    assert found == {Setting(BROKER, str(broker), name): "50000000" for broker in (1, 2, 3) for name in RATES}


def test_a_broker_that_only_moves_between_directories_gets_that_rate_only() -> None:
    assert rates([Transfer(TopicPartition("t", 0), (1, 2), (), (2,))], 7) == {Setting(BROKER, "2", DIRECTORY_RATE): "7"}


def test_what_no_move_needs_is_left_over() -> None:
    values = {
        Setting(BROKER, "1", RATES[0]): "5",
        Setting(BROKER, "1", DIRECTORY_RATE): "5",
        Setting(BROKER, "9", RATES[0]): "5",
        Setting(BROKER, "9", RATES[1]): None,
        Setting(TOPIC, "t", LEADERS): "0:1",
        Setting(TOPIC, "u", LEADERS): "0:1",
    }
    assert [str(setting) for setting in left_over(values, [COPY])] == [
        f"broker 1 {DIRECTORY_RATE}",
        f"broker 9 {RATES[0]}",
        f"topic u {LEADERS}",
    ]


def test_only_topics_that_copy_get_lists_of_where_from_and_where_to() -> None:
    assert lists([SECOND, COPY, ORDER_ONLY]) == {
        Setting(TOPIC, "t", LEADERS): "0:2,0:3,11:2",
        Setting(TOPIC, "t", FOLLOWERS): "0:1,11:1,11:4",
    }


def test_more_replicas_than_a_request_can_name_are_all_of_the_topic() -> None:
    many = [Transfer(TopicPartition("t", partition), (2,), (3,)) for partition in range(10_000)]
    assert lists(many) == {Setting(TOPIC, "t", LEADERS): "*", Setting(TOPIC, "t", FOLLOWERS): "*"}
    some = ",".join(f"{partition}:2" for partition in range(4_000))
    assert lists(many[:4_000])[Setting(TOPIC, "t", LEADERS)] == some
    assert united(some, ",".join(f"{partition}:4" for partition in range(4_000))) == "*"


@pytest.mark.parametrize(
    ("before", "ours", "together"),
    [(None, "0:1", "0:1"), ("", "0:1", "0:1"), ("*", "0:1", "*"), ("7:2,0:1", "0:1,0:3", "7:2,0:1,0:3")],
)
def test_replicas_that_were_throttled_before_stay_so(before: str | None, ours: str, together: str) -> None:
    assert united(before, ours) == together


@pytest.mark.parametrize(
    ("listed", "partitions", "left"),
    [("0:1,0:2,10:1", [0], "10:1"), ("0:1", [0], None), ("*", [0], "*"), ("0:1", [], "0:1")],
)
def test_a_list_without_some_partitions(listed: str, partitions: list[int], left: str | None) -> None:
    assert without(listed, partitions) == left


BROKER_RATE = Setting(BROKER, "1", RATES[0])
TOPIC_LIST = Setting(TOPIC, "t", LEADERS)


def of(now: str, before: str | None) -> Throttle:
    return Throttle("c", 5, {BROKER_RATE: now}, {BROKER_RATE: before})


def test_what_was_there_before_goes_back() -> None:
    assert of("5", "9").to_restore({BROKER_RATE: "5"}) == ({BROKER_RATE: "9"}, [])
    assert of("5", None).to_restore({BROKER_RATE: "5"}) == ({BROKER_RATE: None}, [])


def test_what_looks_as_before_is_put_back_all_the_same_but_not_what_cannot_be_read() -> None:
    """A broker that was just told tells the old value for a moment."""
    assert of("5", None).to_restore({BROKER_RATE: None}) == ({BROKER_RATE: None}, [])
    assert of("5", None).to_restore({}) == ({}, [])


def test_what_somebody_else_changed_meanwhile_stays() -> None:
    assert of("5", None).to_restore({BROKER_RATE: "7"}) == ({}, [BROKER_RATE])


def test_a_second_run_restores_what_was_before_the_first() -> None:
    second = of("6", "5")._replace(rate=6)
    assert second.joined(of("5", None)) == Throttle("c", 6, {BROKER_RATE: "6"}, {BROKER_RATE: None})
    assert second.joined(None) == second


values = st.none() | st.text()
settings = st.builds(Setting, st.sampled_from([BROKER, TOPIC]), st.text(), st.sampled_from([*RATES, *LISTS]))


@given(st.dictionaries(settings, st.tuples(st.text(), values)), st.integers(0, 2**63 - 1), st.text())
def test_state_survives_its_file(entries: dict[Setting, tuple[str, str | None]], rate: int, cluster: str) -> None:
    now = {setting: value for setting, (value, _) in entries.items()}
    before = {setting: value for setting, (_, value) in entries.items()}
    throttle = Throttle(cluster, rate, now, before)
    assert parse_state(render_state(throttle), "f") == throttle


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"settings": [{}]}', '{"settings": [], "rate": "x"}'])
def test_a_state_file_of_something_else_is_refused(text: str) -> None:
    with pytest.raises(KctlError, match="f is not a valid state file"):
        parse_state(text, "f")


ONE, TWO = (Setting(BROKER, broker, RATES[0]) for broker in "12")
LISTED = Setting(TOPIC, "t", LEADERS)


@pytest.mark.parametrize(
    ("before", "new", "commands"),
    [
        ({}, {ONE: "5", LISTED: "0:1"}, ["partitions throttle clear"]),
        ({ONE: "9", TWO: "9", LISTED: "0:1"}, {ONE: "5", TWO: "5", LISTED: "0:1"}, ["partitions throttle set 9"]),
        (
            {ONE: "9"},
            {ONE: "5", TWO: "5", LISTED: "0:1"},
            [
                f"configs set broker/1 {RATES[0]}=9",
                f"configs unset broker/2 {RATES[0]}",
                f"configs unset topic/t {LEADERS}",
            ],
        ),
        ({ONE: "0"}, {ONE: "5"}, [f"configs set broker/1 {RATES[0]}=0"]),
        (
            {ONE: "9", LISTED: "*"},
            {ONE: None, LISTED: None},
            [f"configs set broker/1 {RATES[0]}=9", f"configs set topic/t '{LEADERS}=*'"],
        ),
    ],
)
def test_way_back_restores_what_was_set(
    before: dict[Setting, str | None], new: dict[Setting, str | None], commands: list[str]
) -> None:
    assert way_back(before, new) == commands


def test_the_way_back_of_many_topics_is_not_searched_for_each() -> None:
    def leading_back(count: int) -> Callable[[], object]:
        settings = [Setting(TOPIC, f"t{number}", LISTS[0]) for number in range(count)]
        return lambda: way_back(dict.fromkeys(settings, "0:1"), dict.fromkeys(settings))

    assert is_linear(leading_back)
