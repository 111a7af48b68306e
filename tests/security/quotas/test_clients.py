"""Eight levels of quotas, who shares them, and what happens when they change."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from weakref import ref

import pytest

from kafkad.model import DEFAULT, Entity
from kafkad.security.quotas.clients import Budget, ClientQuotas, Meter
from kafkad.security.quotas.keys import Quota
from kafkad.security.quotas.levels import Overrides, level_of, levels
from kafkad.security.quotas.rate import Windows

OWN, OF_USER, OF_CLIENT = ("u", "c"), ("u", ""), ("", "c")
LEVELS = [
    (Entity(user="u", client="c"), OWN),
    (Entity(user="u", client=DEFAULT), OWN),
    (Entity(user="u"), OF_USER),
    (Entity(user=DEFAULT, client="c"), OWN),
    (Entity(user=DEFAULT, client=DEFAULT), OWN),
    (Entity(user=DEFAULT), OF_USER),
    (Entity(client="c"), OF_CLIENT),
    (Entity(client=DEFAULT), OF_CLIENT),
]


class Room:
    def __init__(self) -> None:
        self.entities: dict[Entity, Overrides] = {}
        self.quotas = ClientQuotas(self.entities, Windows(), Windows())

    def give(self, entity: Entity, **overrides: str) -> None:
        self.entities[entity] = overrides
        self.quotas.changed()

    def of(self, user: str, client: str) -> Budget:
        budget = self.quotas.of(user, client, 0)
        assert budget is not None
        return budget


def test_each_level_stands_before_those_after_it() -> None:
    assert [entity for entity, _ in LEVELS] == list(levels("u", "c"))
    everything = {entity: {"producer_byte_rate": str(place)} for place, (entity, _) in enumerate(LEVELS)}
    for place, (entity, sharers) in enumerate(LEVELS):
        assert level_of(Quota.PRODUCE, "u", "c", everything) == (place, sharers)
        del everything[entity]
    assert level_of(Quota.PRODUCE, "u", "c", everything) is None


def test_a_level_without_this_quota_hides_nothing() -> None:
    entities = {Entity(user="u"): {"request_percentage": "5"}, Entity(client="c"): {"producer_byte_rate": "7"}}
    assert level_of(Quota.PRODUCE, "u", "c", entities) == (7, OF_CLIENT)
    assert level_of(Quota.REQUEST, "u", "c", entities) == (5, OF_USER)
    assert level_of(Quota.FETCH, "u", "c", entities) is None


@pytest.mark.parametrize("text", ["much", "", "NaN", "-5", "-Infinity", "1e999"])
def test_what_is_no_number_limits_nobody(text: str) -> None:
    assert level_of(Quota.PRODUCE, "u", "c", {Entity(user="u"): {"producer_byte_rate": text}}) is None


def test_who_shares_a_quota() -> None:
    room = Room()
    room.give(Entity(user="u"), producer_byte_rate="1000")
    room.give(Entity(client=DEFAULT), consumer_byte_rate="1000")
    assert room.of("u", "a").produce is room.of("u", "b").produce
    assert room.of("u", "a").fetch is room.of("v", "a").fetch, "users with one client id share a budget of clients"
    assert room.of("u", "a").fetch is not room.of("u", "b").fetch
    assert room.of("v", "a").produce is None


def test_another_value_counts_at_once_and_what_was_taken_still_counts() -> None:
    room = Room()
    room.give(Entity(user="u"), producer_byte_rate="1000")
    before = room.of("u", "c").produce
    assert before is not None and before.take(10_000, 0) == 0
    room.give(Entity(user="u"), producer_byte_rate="500")
    after = room.of("u", "c").produce
    assert after is before
    assert after.take(0, 0) == 10_000
    room.give(Entity(user="u"))
    assert room.quotas.of("u", "c", 0) is None


def test_a_lower_value_asks_for_no_more_than_the_last_seconds() -> None:
    """As with Kafka: after an hour at the old rate, too."""
    room = Room()
    room.give(Entity(user="u"), producer_byte_rate="1000")
    now_ms = 0
    while now_ms < 3_600_000:
        meter = room.of("u", "c").produce
        assert meter is not None
        now_ms += max(meter.take(1_000, now_ms), 1_000)
    room.give(Entity(user="u"), producer_byte_rate="500")
    meter = room.of("u", "c").produce
    assert meter is not None
    assert 5_000 < meter.take(1_000, now_ms) < 15_000


def test_other_windows_measure_anew() -> None:
    room = Room()
    room.give(Entity(user="u"), producer_byte_rate="1000", controller_mutation_rate="2")
    before = room.of("u", "c")
    room.quotas.resize(Windows(), Windows())
    assert room.of("u", "c").produce is before.produce
    room.quotas.resize(Windows(number=2), Windows(number=5))
    after = room.of("u", "c")
    assert after.produce is not before.produce
    assert after.produce is not None and after.produce.most_at_once == 1000
    assert after.mutations is not None and after.mutations.bucket.windows.number == 5


def test_client_ids_cannot_fill_the_memory_nor_take_what_others_owe_away() -> None:
    room = Room()
    room.give(Entity(user=DEFAULT), producer_byte_rate="1000")
    room.give(Entity(client="billing"), request_percentage="1")
    room.give(Entity(client=DEFAULT), request_percentage="1")
    debts = [room.of("bob", "b").produce, room.of("", "billing").request]
    for meter in debts:
        assert meter is not None
        meter.take(100_000, 0)
    for number in range(13_000):
        request = room.of("eve", str(number)).request
        assert request is not None
        request.take(1, 0)
        assert len(room.quotas._meters) <= 11_100
    assert [room.of("bob", "b").produce, room.of("", "billing").request] == debts
    assert len(room.quotas._budgets) <= 11_000


def test_meters_of_users_are_all_kept_while_they_matter_and_room_is_made_now_and_then() -> None:
    room = Room()
    room.give(Entity(user=DEFAULT), producer_byte_rate="1000")
    looked = 0

    def counted(now_ms: float, is_idle: Callable[[float], bool]) -> bool:
        nonlocal looked
        looked += 1
        return is_idle(now_ms)

    for number in range(15_000):
        meter = room.of(str(number), "").produce
        assert meter is not None
        meter.take(1, 0)
    with pytest.MonkeyPatch.context() as patch:
        is_idle = Meter.is_idle
        patch.setattr(Meter, "is_idle", lambda meter, now_ms: counted(now_ms, partial(is_idle, meter)))
        for number in range(15_000, 20_000):
            meter = room.of(str(number), "").produce
            assert meter is not None
            meter.take(1, 0)
    assert len(list(room.quotas.meters())) == 20_000
    assert looked <= 2 * 5_000
    room.quotas.of("late", "", 3_600_000)
    assert len(list(room.quotas.meters())) < 20_000


def test_meters_go_at_once_when_they_are_forgotten() -> None:
    """The collector would look through all objects of the broker for them, and everybody wait."""
    room = Room()
    room.give(Entity(client=DEFAULT), consumer_byte_rate="1000")
    gc.disable()
    try:
        fetch = room.of("u", "first").fetch
        assert fetch is not None
        _, turn = fetch.line.ask(9_000, 0, fetch.line.ask(9_000, 0, None)[1])
        assert turn is not None
        meter = ref(fetch)
        del fetch
        for number in range(12_000):
            room.of("u", str(number))
        assert meter() is None
        turn.leave()
    finally:
        gc.enable()


def test_of_a_long_client_id_a_digest_is_remembered() -> None:
    room = Room()
    name = "long" * 5_000
    room.give(Entity(client=DEFAULT), request_percentage="1")
    room.give(Entity(client=name), request_percentage="7")
    request = room.of("u", name).request
    assert request is not None
    assert (request.value, len(request.sharers.client)) == (7, 64)
    assert room.of("u", name).request is request
    assert room.of("u", name + "er").request is not request
    assert all(len(client) <= 255 for _, client in room.quotas._budgets)
