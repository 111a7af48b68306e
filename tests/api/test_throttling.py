"""Quotas through the dispatcher: what counts, what the answer says, and for how long the connection is not read."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from kafkad.api import dispatch, update_features
from kafkad.api.fetch import FetchApi
from kafkad.api.produce import ProduceApi
from kafkad.api.routes import BETWEEN_BROKERS
from kafkad.api.throttling import Throttling
from kafkad.errors import ErrorCode
from kafkad.model import DEFAULT, BrokerInfo, Endpoint, Entity
from kafkad.net.connection import Ending
from kafkad.net.server import Server
from kafkad.security.authorizer import CLUSTER_NAME, Operation, Principal, ResourceType
from kafkad.security.quotas.clients import ClientQuotas, Meter
from kafkad.security.quotas.connections import ConnectionRates
from kafkad.security.quotas.levels import Overrides
from kafkad.security.quotas.rate import Windows
from kafkad.turns import Jobs, Lane
from kafkad.wire.fetch import MENDER
from kafkad.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from kafkad.wire.messages.api_versions import ApiVersionsRequest
from kafkad.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kafkad.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafkad.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kafkad.wire.messages.fetch import FetchRequest, FetchResponse
from kafkad.wire.messages.list_offsets import ListOffsetsRequest
from kafkad.wire.messages.metadata import MetadataRequest
from kafkad.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkad.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kafkad.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from kafkad.wire.messages.write_txn_markers import WriteTxnMarkersRequest
from kafkad.wire.records import Record
from tests.api.frames import Frames
from tests.api.test_fetch import fill
from tests.api.test_fetch import request as to_fetch
from tests.api.test_permissions import Refusing
from tests.api.test_produce import batch, with_follower
from tests.api.test_produce import request as to_produce
from tests.fakes import FakeClock
from tests.one_broker import OneBroker

EVERYBODY = Entity(user=DEFAULT)


class Throttled(Frames):
    """One client's connection to a broker with quotas."""

    def __init__(self, broker: OneBroker) -> None:
        super().__init__(broker)
        self.entities: dict[Entity, Overrides] = {}
        self.clock = FakeClock()
        self.quotas = ClientQuotas(self.entities, Windows(), Windows())

    def give(self, entity: Entity, **overrides: float) -> None:
        self.entities[entity] = {key: str(value) for key, value in overrides.items()}
        self.quotas.changed()
        self.dispatcher.throttle_by(Throttling(self.quotas, self.clock))

    def muted(self) -> list[float]:
        """Since the last call."""
        muted, self.connection.muted_ms = self.connection.muted_ms, []
        return muted


@pytest.fixture
def frames(broker: OneBroker) -> Iterator[Throttled]:
    frames = Throttled(broker)
    broker.create("t")
    yield frames
    frames.close()


def large(size: int) -> bytes:
    return batch([Record(0, 1_700_000_000_000, None, bytes(size))])


@pytest.mark.parametrize("version", range(3, 14))
def test_produce_is_appended_and_answered_with_the_time_to_wait(frames: Throttled, version: int) -> None:
    frames.give(EVERYBODY, producer_byte_rate=1000)
    for turn in range(3):  # from the second on, by the bytes that repeat
        frames.clock.advance(1_000_000)
        answer = frames.ask(to_produce(frames, version, {0: large(20_000)}), version)
        [partition] = answer.responses[0].partition_responses
        assert (partition.error_code, partition.base_offset) == (0, turn)
        assert 10_000 < answer.throttle_time_ms < 10_400
        assert frames.muted() == [answer.throttle_time_ms]


def test_an_answer_that_says_who_leads_has_the_time_to_wait_too(frames: Throttled) -> None:
    frames.give(EVERYBODY, producer_byte_rate=1000)
    endpoint = Endpoint(listener=frames.connection.peer.listener, host="two", port=9002)
    frames.broker.replicas.metadata.brokers[2] = BrokerInfo(id=2, endpoints=(endpoint,), rack="r")
    with_follower(frames, 6, leader=2)
    answer = frames.ask(to_produce(frames, 10, {0: large(20_000)}), 10)
    assert answer.throttle_time_ms > 0
    assert [each.node_id for each in answer.node_endpoints] == [2]


@pytest.mark.parametrize("acks", [0, 1])
def test_what_is_within_the_quota_does_not_wait(frames: Throttled, acks: int) -> None:
    frames.give(EVERYBODY, producer_byte_rate=1000)
    frames.begin(to_produce(frames, 9, {0: large(9_000)}, acks=acks), 9)
    assert frames.muted() == []
    frames.begin(to_produce(frames, 9, {0: large(9_000)}, acks=acks), 9)
    [muted] = frames.muted()
    assert 8_000 < muted < 8_500, "also where there is no answer"


def test_who_has_no_quota_does_not_wait(frames: Throttled) -> None:
    frames.give(Entity(user="bob"), producer_byte_rate=1, request_percentage=0.001)
    frames.give(Entity(user=DEFAULT, client="other"), producer_byte_rate=1)
    frames.ask(to_produce(frames, 9, {0: large(9_000)}), 9)
    assert frames.muted() == []
    frames.ask(to_produce(frames, 9, {0: large(9_000)}), 9, client_id="other")
    assert len(frames.muted()) == 1
    frames.connection.peer.identify(Principal("User", "bob"))
    frames.ask(to_produce(frames, 9, {0: large(9_000)}), 9)
    assert len(frames.muted()) == 1


def test_who_has_not_logged_in_uses_up_nobodys_quota(frames: Throttled) -> None:
    frames.give(Entity(client=DEFAULT), request_percentage=0.001)
    frames.connection.peer.authenticated = False
    for _ in range(3):
        frames.ask(ApiVersionsRequest(), 3, client_id="billing")
    assert frames.muted() == []
    assert not list(frames.quotas.meters())


def test_a_client_id_that_goes_on_behind_the_request_is_refused(
    frames: Throttled, caplog: pytest.LogCaptureFixture
) -> None:
    """There, the buffer has what another client has sent."""
    frames.give(Entity(client=DEFAULT), request_percentage=50)
    with pytest.raises(Ending):
        frames.begin(ApiVersionsRequest(), 3, client_id="id", damage=(b"\0\2id", b"\0\x3cid"))
    assert "ApiVersions v3 is malformed: it has no room for a client id of 60 bytes" in caplog.text
    assert not list(frames.quotas.meters())


def test_a_request_of_the_slow_way_waits_too(frames: Throttled) -> None:
    """Its answer comes later, and the connection is not read from the start."""
    frames.broker.create("slow", configs={"compression.type": "zstd"})
    frames.give(EVERYBODY, producer_byte_rate=1000)
    answer = frames.ask(to_produce(frames, 9, {0: large(900_000)}, "slow"), 9)
    assert answer.responses[0].partition_responses[0].error_code == 0
    assert answer.throttle_time_ms == frames.muted()[0] > 800_000


@pytest.mark.parametrize("version", [4, 7, 12, 17])
def test_a_fetch_over_the_quota_gets_nothing_and_counts_for_nothing(frames: Throttled, version: int) -> None:
    fill(frames, batches=40, size=1000)
    frames.give(EVERYBODY, consumer_byte_rate=5000)
    one_at_a_time = to_fetch(frames, version, {0: 0}, partition_max_bytes=20_000)
    seen = [frames.ask(one_at_a_time, version) for _ in range(4)]
    assert [bool(found.responses) for found in seen] == [True, True, False, False]
    [first, second] = frames.muted()
    assert first == second == seen[2].throttle_time_ms == seen[3].throttle_time_ms > 0
    frames.clock.advance(first)
    assert frames.ask(one_at_a_time, version).responses
    assert frames.muted() == []


def test_who_is_refused_waits_in_line_and_leaves_it_with_its_connection(frames: Throttled) -> None:
    fill(frames, batches=40, size=1000)
    frames.give(EVERYBODY, consumer_byte_rate=5000)
    asked = to_fetch(frames, 12, {0: 0}, partition_max_bytes=20_000)
    while not (first := frames.ask(asked, 12).throttle_time_ms):
        pass
    leaves = frames.connection.peer
    frames.connection = frames.connect()
    second = frames.ask(asked, 12).throttle_time_ms
    assert second > 1.5 * first
    leaves.closed()
    frames.connection = frames.connect()
    assert frames.ask(asked, 12).throttle_time_ms == second, "there was a place before the one of the second"


def test_a_fetch_is_cut_to_what_may_be_fetched_at_once(frames: Throttled) -> None:
    fill(frames, batches=40, size=1000)
    frames.give(EVERYBODY, consumer_byte_rate=1000)
    found = frames.ask(to_fetch(frames, 12, {0: 0}, min_bytes=50_000, max_wait_ms=5_000), 12)
    assert 8_000 < len(found.responses[0].partitions[0].records) < 10_000


def test_one_batch_that_is_larger_passes_and_is_paid_for(frames: Throttled) -> None:
    frames.broker.append("t", 0, Record(0, 1, None, bytes(30_000)))
    frames.give(EVERYBODY, consumer_byte_rate=1000)
    asked = to_fetch(frames, 12, {0: 0})
    assert frames.ask(asked, 12).throttle_time_ms == 0
    [paid] = frames.muted()
    assert 20_000 < paid < 21_000
    refused = frames.ask(asked, 12)
    assert not refused.responses
    frames.clock.advance(10_000 + refused.throttle_time_ms)
    assert frames.ask(asked, 12).responses


def test_a_session_is_not_touched_by_a_fetch_that_gets_nothing(frames: Throttled) -> None:
    fill(frames, batches=2, size=4000)
    frames.give(EVERYBODY, consumer_byte_rate=1000)
    first = frames.ask(to_fetch(frames, 12, {0: 0}, session_epoch=0), 12)
    assert first.session_id and first.responses
    more = to_fetch(frames, 12, {}, session_id=first.session_id, session_epoch=1)
    throttled = frames.ask(more, 12)
    assert (throttled.session_id, throttled.responses) == (first.session_id, [])
    frames.clock.advance(20_000)
    more.session_epoch = 2
    assert len(frames.ask(more, 12).responses[0].partitions[0].records) > 4000


def test_a_session_does_not_begin_with_a_fetch_that_gets_nothing(frames: Throttled) -> None:
    fill(frames, batches=2, size=4000)
    frames.give(EVERYBODY, consumer_byte_rate=1000)
    frames.ask(to_fetch(frames, 12, {0: 0}), 12)
    throttled: FetchResponse = frames.ask(to_fetch(frames, 12, {0: 0}, session_epoch=0), 12)
    assert (throttled.error_code, throttled.session_id, throttled.responses) == (0, 0, [])
    assert throttled.throttle_time_ms > 0
    assert len(frames.fetch.sessions) == 0


def test_followers_have_no_quota(frames: Throttled) -> None:
    fill(frames, batches=2, size=4000)
    frames.give(EVERYBODY, consumer_byte_rate=1, request_percentage=1e-6)
    found: list[Any] = [frames.ask(to_fetch(frames, 12, {0: 0}, replica_id=2), 12) for _ in range(3)]
    assert frames.connection.spent is None
    frames.ask(ListOffsetsRequest(replica_id=2), 7)
    assert frames.connection.spent is None
    frames.ask(WriteTxnMarkersRequest(), 1)
    assert frames.connection.spent is None
    assert [answer.throttle_time_ms for answer in found] == [0, 0, 0]
    assert frames.muted() == []
    assert {route.name for route in BETWEEN_BROKERS} >= {"LeaderAndIsr", "UpdateMetadata", "AlterPartition"}


def test_a_broker_that_mends_its_log_needs_no_right_to_read_and_has_no_quota(frames: Throttled) -> None:
    fill(frames, batches=2, size=4000)
    authorizer = frames.connection.peer.authorizer = Refusing()
    authorizer.allowed.add((Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME))
    frames.connection.peer.identify(Principal("User", "broker"))
    [refused] = frames.ask(to_fetch(frames, 12, {0: 0}), 12).responses[0].partitions
    assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    frames.give(EVERYBODY, consumer_byte_rate=1, request_percentage=1e-6)
    for _ in range(3):
        answer = frames.ask(to_fetch(frames, 12, {0: 0}, replica_id=MENDER), 12)
        [partition] = answer.responses[0].partitions
        assert (partition.error_code, answer.throttle_time_ms) == (0, 0)
        assert partition.records
    assert frames.muted() == []


def test_where_everybody_may_all_the_id_of_a_mender_says_nothing(frames: Throttled) -> None:
    """Old clients have it in requests that have nothing to do with logs."""
    fill(frames, batches=2, size=4000)
    frames.give(EVERYBODY, consumer_byte_rate=1, request_percentage=1e-6)
    for asked, version in (
        (to_fetch(frames, 12, {0: 0}, replica_id=MENDER), 12),
        (OffsetForLeaderEpochRequest(), 2),
        (ListOffsetsRequest(replica_id=MENDER), 7),
    ):
        frames.ask(asked, version)
        assert len(frames.muted()) == 1, asked


def test_who_may_not_be_a_broker_has_quotas_whatever_it_says(frames: Throttled) -> None:
    fill(frames, batches=2, size=4000)
    frames.connection.peer.authorizer = Refusing()
    frames.connection.peer.identify(Principal("User", "mallory"))
    frames.give(EVERYBODY, consumer_byte_rate=1, request_percentage=1e-6)
    for asked, version in (
        (ListOffsetsRequest(replica_id=2), 7),
        (to_fetch(frames, 12, {0: 0}, replica_id=2), 12),
        (to_fetch(frames, 12, {0: 0}, replica_id=MENDER), 12),
        (WriteTxnMarkersRequest(), 1),
        (AddPartitionsToTxnRequest(), 4),
    ):
        frames.ask(asked, version)
        assert len(frames.muted()) == 1, asked


def test_a_fetch_that_was_prepared_before_the_quota_does_not_pass_by_it(frames: Throttled) -> None:
    fill(frames, batches=40, size=1000)
    asked = to_fetch(frames, 12, {0: 0})
    for _ in range(2):
        frames.ask(asked, 12)
    assert frames.connection.peer.prepared
    frames.give(EVERYBODY, consumer_byte_rate=10)
    frames.ask(asked, 12)
    assert len(frames.muted()) == 1
    frames.dispatcher.throttle_by(None)
    frames.ask(asked, 12)
    assert frames.muted() == []


@pytest.mark.parametrize("now", [10.0, None])
def test_a_fetch_that_waits_is_held_to_the_quota_of_when_it_is_answered(frames: Throttled, now: float | None) -> None:
    before, after = (1e9, now) if now else (10.0, 1e9)
    frames.give(EVERYBODY, consumer_byte_rate=before)
    assert frames.begin(to_fetch(frames, 12, {0: 0}, min_bytes=1, max_wait_ms=60_000), 12) is None
    frames.give(EVERYBODY, consumer_byte_rate=after)
    fill(frames, batches=1, size=4000)
    frames.broker.run_until(lambda: bool(frames.connection.replies))
    assert bool(frames.muted()) == bool(now)


def test_a_fetch_that_waits_is_held_to_no_quota_that_is_gone(frames: Throttled) -> None:
    frames.give(EVERYBODY, consumer_byte_rate=10)
    assert frames.begin(to_fetch(frames, 12, {0: 0}, min_bytes=1, max_wait_ms=60_000), 12) is None
    frames.give(EVERYBODY)
    fill(frames, batches=1, size=4000)
    frames.broker.run_until(lambda: bool(frames.connection.replies))
    answer = frames.decode(frames.connection.replies[0] or b"", 1, 12)
    assert (answer.throttle_time_ms, len(answer.responses), frames.muted()) == (0, 1, [])


def commit(version: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
    return OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])],
    )


@pytest.mark.parametrize("version", [2, 3, 7, 8, 9])
def test_time_counts_for_every_request_and_at_most_one_window(frames: Throttled, version: int) -> None:
    """A commit that repeats itself is answered from prepared bytes."""
    frames.broker.run(frames.broker.context.group_coordination.prepare())
    frames.broker.run_until(lambda: bool(list(frames.broker.context.group_coordination.shards())))
    frames.ask(commit(version), version)
    frames.give(EVERYBODY, request_percentage=1e-9)
    for _ in range(3):
        answer = frames.ask(commit(version), version)
        assert answer.topics[0].partitions[0].error_code == 0
        assert answer.throttle_time_ms == (1000 if version >= 3 else 0)
        assert frames.muted() == [1000], "every version waits"


@pytest.mark.parametrize("version", [0, 3, 9, 12])
def test_time_of_a_request_that_has_a_handler(frames: Throttled, version: int) -> None:
    frames.give(EVERYBODY, request_percentage=1e-9)
    answer = frames.ask(MetadataRequest(topics=[]), version)
    assert answer.throttle_time_ms == (1000 if version >= 3 else 0)
    assert frames.muted() == [1000]
    frames.give(EVERYBODY, request_percentage=1e9)
    assert frames.ask(MetadataRequest(topics=[]), version).throttle_time_ms == 0


def test_time_is_that_of_work_and_not_of_waiting(frames: Throttled) -> None:
    """A fetch that waits for records, and a produce whose answer nobody gets."""
    frames.give(EVERYBODY, request_percentage=50)
    frames.ask(FetchRequest(topics=to_fetch(frames, 12, {0: 0}).topics, max_wait_ms=0, min_bytes=1), 12)
    [meter] = frames.quotas.meters()
    taken = meter.measured(frames.clock.monotonic_ms()).values["request_time"]
    assert 0 < taken < 5
    frames.begin(to_produce(frames, 9, {0: large(100)}, acks=0), 9)
    assert meter.measured(frames.clock.monotonic_ms()).values["request_time"] == taken


class Stopwatch:
    """Time passes when a test says so: a microsecond in each step of the work that it looks at, and a second in each
    turn of the loop for others."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps = 0
        self.charged_ns = 0.0
        self._patch = monkeypatch
        self._now_ns = 0
        add = Meter.add

        def noted(meter: Meter, amount: float, now_ms: float) -> None:
            self.charged_ns += amount * 1e7
            add(meter, amount, now_ms)

        monkeypatch.setattr("kafkad.api.throttling.perf_counter_ns", lambda: self._now_ns)
        monkeypatch.setattr(Meter, "add", noted)

    def step(self) -> None:
        self.steps += 1
        self._now_ns += 1_000

    def look_at(self, owner: object, name: str) -> None:
        """Each call of it is a step."""
        work = getattr(owner, name)

        def looked_at(*arguments: Any, **named: Any) -> Any:
            self.step()
            return work(*arguments, **named)

        self._patch.setattr(owner, name, looked_at)

    @contextmanager
    def beside_others(self, frames: Throttled) -> Iterator[None]:
        """Meanwhile others have work in each turn of the loop, and only one piece of what is large is done in one."""
        lane = Lane(lambda call: asyncio.get_running_loop().call_soon(call), clock=partial(next, count()))
        for api in (frames.produce, frames.fetch, frames.dispatcher):
            self._patch.setattr(api, "_jobs", Jobs(lane))

        async def work() -> None:
            while True:
                self._now_ns += 1_000_000_000
                await asyncio.sleep(0)

        async def begin() -> asyncio.Task[None]:
            return asyncio.create_task(work())

        async def end() -> None:
            others.cancel()
            await asyncio.wait([others])

        others = frames.broker.run(begin())
        try:
            yield
        finally:
            frames.broker.run(end())


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Stopwatch:
    return Stopwatch(monkeypatch)


def test_time_of_a_handler_is_that_of_all_its_turns_and_of_nobody_elses(
    frames: Throttled, watch: Stopwatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def handle(context: Any, request: Any, message: Any) -> UpdateFeaturesResponse:
        for wait_s in (0, 0.001):
            watch.step()
            await asyncio.sleep(wait_s)
        watch.step()
        with suppress(TimeoutError):
            async with asyncio.timeout(0.001):
                await asyncio.Event().wait()
        watch.step()
        return UpdateFeaturesResponse()

    monkeypatch.setattr(update_features, "handle", handle)
    frames.give(EVERYBODY, request_percentage=50)
    with watch.beside_others(frames):
        assert frames.ask(UpdateFeaturesRequest(feature_updates=[]), 1).error_code == 0
    assert (watch.steps, watch.charged_ns) == (4, pytest.approx(4_000))


def test_time_of_a_large_fetch_is_not_that_of_others_between_its_pieces(frames: Throttled, watch: Stopwatch) -> None:
    frames.give(EVERYBODY, request_percentage=50)
    watch.look_at(FetchApi, "_found")
    with watch.beside_others(frames):
        frames.ask(to_fetch(frames, 12, dict.fromkeys(range(2_000), 0)), 12)
    assert (watch.steps, watch.charged_ns) == (2_000, pytest.approx(2_000_000))


def test_time_of_a_fetch_that_waits_is_that_of_each_look(frames: Throttled, watch: Stopwatch) -> None:
    frames.give(EVERYBODY, request_percentage=50)
    watch.look_at(FetchApi, "_found")
    with watch.beside_others(frames):
        assert frames.begin(to_fetch(frames, 12, {0: 0}, min_bytes=1_000, max_wait_ms=60_000), 12) is None
        fill(frames, batches=1, size=300)
        frames.broker.run_until(lambda: watch.steps == 2)
        fill(frames, batches=1, size=300)
        frames.broker.run_until(lambda: bool(frames.connection.replies))
    assert watch.charged_ns == pytest.approx(watch.steps * 1_000)


def test_time_of_a_produce_for_many_partitions_is_that_of_all_its_pieces(frames: Throttled, watch: Stopwatch) -> None:
    frames.give(EVERYBODY, request_percentage=50)
    watch.look_at(ProduceApi, "_append_topic")
    with watch.beside_others(frames):
        frames.ask(to_produce(frames, 9, {index: None for index in range(1_200)}, acks=1), 9)
    assert (watch.steps, watch.charged_ns) == (120, pytest.approx(120_000))


def test_time_of_a_produce_counts_after_a_worker_has_opened_its_batch(frames: Throttled, watch: Stopwatch) -> None:
    frames.broker.create("slow", configs={"compression.type": "zstd"})
    frames.give(EVERYBODY, request_percentage=50)
    watch.look_at(ProduceApi, "_write")
    with watch.beside_others(frames):
        frames.ask(to_produce(frames, 9, {0: large(900_000)}, "slow"), 9)
    assert (watch.steps, watch.charged_ns) == (1, pytest.approx(1_000))


def test_time_of_an_answer_that_waits_for_followers_counts(frames: Throttled, watch: Stopwatch) -> None:
    with_follower(frames, 5)
    frames.give(EVERYBODY, request_percentage=50)
    watch.look_at(ProduceApi, "_reply")
    with watch.beside_others(frames):
        assert frames.begin(to_produce(frames, 9, {0: large(100)}), 9) is None
        with_follower(frames, 6, isr=(1,))
    assert frames.connection.replies
    assert (watch.steps, watch.charged_ns) == (1, pytest.approx(1_000))


def test_time_of_encoding_an_answer_counts_with_the_next_request(frames: Throttled, watch: Stopwatch) -> None:
    frames.give(EVERYBODY, request_percentage=1e-9)
    watch.look_at(dispatch, "encode_response")
    assert frames.ask(ApiVersionsRequest(), 2).throttle_time_ms == 0
    assert watch.charged_ns == pytest.approx(1_000)
    assert frames.ask(ApiVersionsRequest(), 2).throttle_time_ms > 0


def test_time_of_moving_bytes_counts_with_the_next_request(frames: Throttled) -> None:
    """As Kafka counts what its network threads do. Where no time has a quota nothing is measured."""
    frames.give(EVERYBODY, consumer_byte_rate=1e9)
    frames.ask(MetadataRequest(topics=[]), 12)
    assert frames.connection.spent is None
    frames.give(EVERYBODY, request_percentage=50)
    assert frames.ask(MetadataRequest(topics=[]), 12).throttle_time_ms == 0
    assert frames.connection.spent is not None
    frames.connection.spent(5_200_000_000)
    assert frames.muted() == [], "its answer has left already"
    assert frames.ask(MetadataRequest(topics=[]), 12).throttle_time_ms == pytest.approx(400, abs=20)
    frames.give(EVERYBODY, consumer_byte_rate=1e9)
    frames.ask(MetadataRequest(topics=[]), 12)
    assert frames.connection.spent is None


def new(name: str, partitions: int) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)


def test_changes_of_topics_are_refused_once_nothing_is_left(frames: Throttled) -> None:
    """As Kafka was seen to do it: rate 1, 8 and 8 partitions pass, the third request is to wait for 5 s."""
    frames.give(EVERYBODY, controller_mutation_rate=1)
    exceeded = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    answers = [frames.ask(CreateTopicsRequest(topics=[new(name, 8)], timeout_ms=5000), 7) for name in ("a", "b", "c")]
    assert [answer.topics[0].error_code for answer in answers] == [0, 0, exceeded]
    assert [answer.throttle_time_ms for answer in answers] == [0, 0, 5000]
    assert frames.muted() == [5000]
    more = CreatePartitionsTopic(name="a", count=9, assignments=None)
    answer = frames.ask(CreatePartitionsRequest(topics=[more], timeout_ms=5000), 3)
    assert (answer.results[0].error_code, answer.throttle_time_ms) == (exceeded, 5000)
    answer = frames.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="a")], timeout_ms=5000), 6)
    assert (answer.responses[0].error_code, answer.throttle_time_ms) == (exceeded, 5000)
    frames.clock.advance(5000)
    answer = frames.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="a")], timeout_ms=5000), 6)
    assert (answer.responses[0].error_code, answer.throttle_time_ms) == (0, 0)
    [mutations] = frames.quotas.meters()
    assert mutations.measured(frames.clock.monotonic_ms()).values["tokens"] == -8


def test_a_topic_that_is_deleted_twice_in_a_request_counts_once(frames: Throttled) -> None:
    frames.ask(CreateTopicsRequest(topics=[new("a", 8)], timeout_ms=5000), 7)
    frames.give(EVERYBODY, controller_mutation_rate=1)
    by_id = DeleteTopicState(name=None, topic_id=frames.broker.replicas.metadata.topics["a"].id)
    twice = [DeleteTopicState(name="a"), by_id, DeleteTopicState(name="a")]
    answer = frames.ask(DeleteTopicsRequest(topics=twice, timeout_ms=5000), 6)
    assert [topic.error_code for topic in answer.responses] == [0, 0, 0]
    [mutations] = frames.quotas.meters()
    assert mutations.measured(frames.clock.monotonic_ms()).values["tokens"] == 3


def test_older_requests_are_carried_out_and_wait(frames: Throttled) -> None:
    frames.give(EVERYBODY, controller_mutation_rate=1)
    answer = frames.ask(CreateTopicsRequest(topics=[new("a", 8), new("b", 8)], timeout_ms=5000), 5)
    assert [topic.error_code for topic in answer.topics] == [0, 0]
    assert answer.throttle_time_ms == 5000
    assert frames.muted() == [5000]


def test_one_that_is_only_validated_or_wrong_takes_nothing(frames: Throttled) -> None:
    frames.give(EVERYBODY, controller_mutation_rate=1)
    frames.ask(CreateTopicsRequest(topics=[new("a", 80)], timeout_ms=5000, validate_only=True), 7)
    frames.ask(CreateTopicsRequest(topics=[new("t", 80)], timeout_ms=5000), 7)
    frames.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="nowhere")], timeout_ms=5000), 6)
    answer = frames.ask(CreateTopicsRequest(topics=[new("a", 11)], timeout_ms=5000), 7)
    assert (answer.topics[0].error_code, answer.throttle_time_ms) == (0, 0)
    assert frames.muted() == []


def test_a_quota_of_the_store_is_in_force(broker: OneBroker) -> None:
    """Set in the store, and told by metrics; then removed."""
    dispatcher = broker.parts.dispatcher
    assert dispatcher.throttling is None

    def give(after: Overrides) -> None:
        broker.run(broker.context.entity_alterer.change(Entity(user="u"), lambda before: after))
        broker.run(broker.configs.catch_up())

    give({"producer_byte_rate": "1000", "SCRAM-SHA-256": "…"})
    assert dispatcher.throttling is not None
    assert list(broker.parts.quotas.collect(with_users=True)) == [], "nobody has taken anything"
    quotas = broker.parts.quotas.clients
    assert quotas is not None
    budget = quotas.of("u", "c", broker.context.clock.monotonic_ms())
    assert budget is not None and budget.produce is not None
    budget.produce.take(50_000, broker.context.clock.monotonic_ms())
    told = {
        family.name: list(family.samples)
        for family in broker.parts.quotas.collect(with_users=True)
        if family is not None
    }
    whose = (("resource", "Produce"), ("user", "u"), ("clientId", ""))
    [(labels, rate)] = told["kafka_server_quota_byte_rate"]
    assert (labels, rate) == (whose, pytest.approx(5000, rel=0.1))
    assert told["kafka_server_quota_throttle_time"] == [(whose, pytest.approx(40_000, rel=0.1))]
    assert list(broker.parts.quotas.collect(with_users=False)) == [], "nor of whom, to just anybody"
    give({"SCRAM-SHA-256": "…"})
    assert dispatcher.throttling is None


def test_credentials_alone_leave_prepared_answers_as_they_are(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped: list[object] = []
    monkeypatch.setattr(broker.parts.dispatcher, "throttle_by", dropped.append)
    broker.run(broker.context.entity_alterer.change(Entity(user="u"), lambda before: {"SCRAM-SHA-256": "…"}))
    broker.run(broker.configs.catch_up())
    assert dropped == []


def test_windows_are_those_of_the_settings(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, "quota.window.num=3", "quota.window.size.seconds=2", "controller.quota.window.num=5")
    try:
        quotas = {"producer_byte_rate": "1000", "controller_mutation_rate": "1"}
        broker.run(broker.context.entity_alterer.change(Entity(user="u"), lambda before: quotas))
        broker.run(broker.configs.catch_up())
        assert broker.parts.quotas.clients is not None
        budget = broker.parts.quotas.clients.of("u", "c", 0)
        assert budget is not None and budget.produce is not None and budget.mutations is not None
        assert budget.produce.most_at_once == 4000
        assert budget.mutations.bucket.windows == Windows(5, 1000)
    finally:
        broker.stop()


def test_rates_of_connections_are_those_of_settings_and_addresses(tmp_path: Path) -> None:
    broker = OneBroker(
        tmp_path, "max.connection.creation.rate=50", "listener.name.outside.max.connection.creation.rate=1"
    )
    server = broker.parts.platform.server
    try:
        assert server.pace is not None
        assert [server.pace.wait_ms("OUTSIDE", 0) > 0 for _ in range(11)] == [False] * 10 + [True]
        assert server.pace.hold_ms("OUTSIDE", "127.0.0.1", 0) == 0
        for name in ("localhost", "127.0.0.1"):
            entity = Entity(ip=name)
            broker.run(broker.context.entity_alterer.change(entity, lambda before: {"connection_creation_rate": "1"}))
            broker.run(broker.configs.catch_up())
            broker.run_until(lambda: has_rate(server))
            held = [server.pace.hold_ms("OUTSIDE", "127.0.0.1", 0) > 0 for _ in range(11)]
            assert held == [False] * 10 + [True]
            assert server.pace.hold_ms("PLAINTEXT", "127.0.0.1", 0) == 0, "other brokers come there"
            broker.run(broker.context.entity_alterer.change(entity, lambda before: {}))
            broker.run(broker.configs.catch_up())
            assert server.pace.hold_ms("OUTSIDE", "127.0.0.1", 0) == 0
    finally:
        broker.stop()


def test_a_rate_of_the_listener_between_brokers_holds_also_when_it_is_that_of_the_broker(tmp_path: Path) -> None:
    """Only the broker's own is not for other brokers."""
    rate = "max.connection.creation.rate=1"
    broker = OneBroker(tmp_path, rate, f"listener.name.plaintext.{rate}")
    try:
        assert broker.parts.platform.server.pace is not None
        waits = [broker.parts.platform.server.pace.wait_ms("PLAINTEXT", 0) > 0 for _ in range(11)]
        assert waits == [False] * 10 + [True]
    finally:
        broker.stop()


def has_rate(server: Server) -> bool:
    return isinstance(server.pace, ConnectionRates) and "127.0.0.1" in server.pace._rates.addresses


def test_names_are_looked_up_once_and_nobody_waits_for_that(broker: OneBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    server, known, asked = broker.parts.platform.server, threading.Event(), []

    def look_up(host: str, *arguments: object, **named: object) -> list[Any]:
        asked.append(host)
        known.wait(20)
        return [(0, 0, 0, "", ("127.0.0.1", 0))]

    monkeypatch.setattr("kafkad.broker.host_addresses.socket.getaddrinfo", look_up)
    alter = broker.context.entity_alterer
    broker.run(alter.change(Entity(ip="slow"), lambda before: {"connection_creation_rate": "1"}))
    broker.run(broker.configs.catch_up())
    assert not has_rate(server)
    known.set()
    broker.run_until(lambda: has_rate(server))
    pace = server.pace
    for entity in (Entity(user="alice"), Entity(ip="10.0.0.1")):
        broker.run(alter.change(entity, lambda before: {"connection_creation_rate": "2"}))
        broker.run(broker.configs.catch_up())
        assert (server.pace is pace) is (entity.ip is None)
    assert has_rate(server)
    assert asked == ["slow"]


def test_a_broker_without_rates_has_no_pace(broker: OneBroker) -> None:
    assert broker.parts.platform.server.pace is None
