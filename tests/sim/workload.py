"""The clients of a simulated cluster: producers, consumers, a group that commits, and an administrator.

Each is a process of its own that talks to brokers in Kafka's protocol and tells the history what it was promised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple

from kafkad.broker.loop_timers import LoopTimers
from kafkad.errors import ErrorCode
from kafkad.model import Endpoint
from kafkad.net.client import BrokerClient, ClientOptions, LinkError
from kafkad.timers import sleep
from kafkad.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kafkad.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kafkad.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kafkad.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kafkad.wire.messages.elect_leaders import ElectLeadersRequest
from kafkad.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkad.wire.messages.find_coordinator import FindCoordinatorRequest
from kafkad.wire.messages.init_producer_id import InitProducerIdRequest
from kafkad.wire.messages.metadata import MetadataRequest
from kafkad.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkad.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kafkad.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkad.wire.records import BATCH_HEADER, Record, build_batch, crc_matches, iter_records
from tests.sim.history import LOOSE, History, Place, Violation
from tests.sim.network import BROKER_PORT, Network
from tests.sim.world import ProcessClock, World

STEADY = "steady"
GROUP = "group"
_REQUEST_MS = 1_000
_ALL, _LEADER = -1, 1


class Led(NamedTuple):
    """A partition as the metadata of some broker had it."""

    place: Place
    leader: int
    epoch: int


class Client:
    """A process that talks to brokers."""

    def __init__(self, world: World, network: Network, history: History, name: str, brokers: list[int]) -> None:
        self.name = name
        self.world = world
        self.history = history
        self.random = Random(world.random.getrandbits(32))
        self.loop = world.process(name)
        self.clock = ProcessClock(world)
        self.timers = LoopTimers(self.loop, self.clock).timers
        self.brokers = brokers
        self.versions: dict[int, tuple[int, int]] = {}
        """By API, where not all versions are to be asked."""
        self.partitions: dict[Place, Led] = {}
        self.assigned: dict[Place, list[int]] = {}
        self._clients: dict[int, BrokerClient] = {}
        network.host(name, self.loop)

    async def run(self) -> None:
        """For ever."""
        raise NotImplementedError

    async def pause(self, mean_s: float) -> None:
        await sleep(self.random.expovariate(1 / mean_s) * 1000, self.clock, self.timers)

    async def ask(self, broker: int, request: Any, timeout_ms: int = _REQUEST_MS) -> Any:
        """None when there is no answer."""
        client = self._clients.get(broker)
        if client is None:
            endpoint = Endpoint(listener="PLAINTEXT", host=str(broker), port=BROKER_PORT)
            client = BrokerClient(
                endpoint,
                ClientOptions(client_id=self.name, software_version="1", versions=self.versions),
                self.clock,
                self.timers,
            )
            self._clients[broker] = client
        try:
            return await client.call(request, timeout_ms=timeout_ms)
        except LinkError:
            return None

    async def refresh(self) -> Any:
        """Ask some broker for its metadata; None when it does not answer."""
        answer = await self.ask(self.random.choice(self.brokers), MetadataRequest(topics=None))
        if answer is not None:
            self.partitions = {}
            self.assigned = {}
            for topic in answer.topics:
                self.history.names[topic.topic_id] = topic.name
                for partition in topic.partitions:
                    place = Place(topic.topic_id, partition.partition_index)
                    self.assigned[place] = list(partition.replica_nodes)
                    self.partitions[place] = Led(place, partition.leader_id, partition.leader_epoch)
        return answer

    def data_places(self) -> list[Place]:
        names = self.history.names
        return [place for place in self.partitions if not names[place.topic_id].startswith("__")]

    async def controller(self) -> int | None:
        answer = await self.refresh()
        return None if answer is None or answer.controller_id < 0 else answer.controller_id


class Producer(Client):
    """Sends a batch until it is appended, or has failed too often."""

    def __init__(self, *who: Any, acks: int, idempotent: bool, leader: Callable[[Place], int]) -> None:
        """`leader` is that of a partition as the store has it."""
        super().__init__(*who)
        self._leader = leader
        self._acks = acks
        self._idempotent = idempotent
        self._sent = 0
        self._producer: tuple[int, int] = -1, -1
        self._sequences: dict[Place, int] = {}

    async def run(self) -> None:
        while True:
            await self.pause(0.06)
            if self._idempotent and self._producer[0] < 0:
                await self._get_producer_id()
                continue
            places = self.data_places()
            if self._idempotent:  # what is lost there has its sequences refused for ever
                places = [place for place in places if not self.history.is_loose(place.topic_id)]
            if not places:
                await self.refresh()
                continue
            await self._produce(self.random.choice(places))

    async def _get_producer_id(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000)
        answer = await self.ask(self.random.choice(self.brokers), request)
        if answer is not None and not answer.error_code:
            self._producer = answer.producer_id, answer.producer_epoch

    async def _produce(self, place: Place) -> None:
        values = []
        for _ in range(self.random.choice((1, 1, 2, 5))):
            self._sent += 1
            values.append(b"%s:%d:" % (self.name.encode(), self._sent) + b"." * self.random.randrange(200))
        if self._idempotent:
            self.history.sent_once.update(values)
        sequence = self._sequences.get(place, 0)
        records = [Record(at, self.clock.now_ms(), None, value) for at, value in enumerate(values)]
        producer_id, producer_epoch = self._producer
        batch = build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence if self._idempotent else -1,
        )
        attempts = 0
        while attempts < 4 or self._idempotent:
            attempts += 1
            if place.topic_id in self.history.gone:
                return
            if await self._try(place, bytes(batch), values):
                self._sequences[place] = sequence + len(values)
                return
            await self.pause(0.1)
            await self.refresh()

    async def _try(self, place: Place, batch: bytes, values: list[bytes]) -> bool:
        led = self.partitions.get(place)
        if led is None or led.leader < 0:
            return False
        data = TopicProduceData(
            topic_id=place.topic_id, partition_data=[PartitionProduceData(index=place.partition, records=batch)]
        )
        leads = self._leader(place) == led.leader
        answer = await self.ask(
            led.leader, ProduceRequest(acks=self._acks, timeout_ms=_REQUEST_MS // 2, topic_data=[data])
        )
        if answer is None:
            return False
        done = answer.responses[0].partition_responses[0]
        if done.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and leads and self._leader(place) == led.leader:
            raise Violation(
                f"{place}: an acknowledged batch of {self.name} is not known to broker {led.leader}, its leader"
            )
        if done.error_code:
            return False
        self.world.note("acked" if self._acks == _ALL else "acked by the leader", place, done.base_offset, len(values))
        if self._acks == _ALL and done.base_offset >= 0:
            self.history.acknowledged(place, done.base_offset, values)
        return True


class Consumer(Client):
    """Reads every partition from its beginning to the high watermark, and then what comes."""

    def __init__(self, *who: Any) -> None:
        super().__init__(*who)
        self._next: dict[Place, int] = {}
        self._epochs: dict[Place, int] = {}

    async def run(self) -> None:
        while True:
            await self.pause(0.05)
            places = [led for place in self.data_places() if (led := self.partitions[place]).leader >= 0]
            if not places or self.random.random() < 0.05:
                await self.refresh()
                continue
            led = self.random.choice(places)
            if led.epoch < self._epochs.get(led.place, -1) or not await self._fetch(led):
                await self.refresh()

    async def _fetch(self, led: Led) -> bool:
        """Metadata older than what was read from are not followed (KIP-320)."""
        place = led.place
        at = self._next.get(place, 0)
        wanted = FetchPartition(
            partition=place.partition, current_leader_epoch=led.epoch, fetch_offset=at, partition_max_bytes=20_000
        )
        request = FetchRequest(
            max_wait_ms=100,
            min_bytes=1,
            max_bytes=50_000,
            topics=[FetchTopic(topic_id=place.topic_id, partitions=[wanted])],
        )
        answer = await self.ask(led.leader, request)
        if answer is None or answer.error_code or not answer.responses:
            return answer is not None and not answer.error_code
        found = answer.responses[0].partitions[0]
        lost = place.topic_id in self.history.gone or self.history.is_loose(place.topic_id)
        if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and lost:
            self._next[place] = 0
        if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and not lost:
            raise Violation(f"{place}: {self.name} read up to {at}, which broker {led.leader} says is out of range")
        if found.error_code:
            return False
        self._epochs[place] = led.epoch
        self._take(place, at, found.records or b"", found.high_watermark)
        return True

    def _take(self, place: Place, at: int, data: bytes, high_watermark: int) -> None:
        for value_at, value in values_in(memoryview(data)):
            if value_at >= high_watermark:
                raise Violation(f"{place}: {self.name} was sent offset {value_at} above the watermark {high_watermark}")
            if value_at >= at:
                self.history.was_read(place, value_at, value)
                self._next[place] = value_at + 1
        if self._next.get(place, 0) > at:
            self.world.note("read", self.name, place, at, self._next[place])


class Committer(Client):
    """Commits ever higher offsets for a group, and reads them again."""

    def __init__(self, *who: Any, leader: Callable[[Place], int]) -> None:
        """`leader` is that of a partition as the store has it."""
        super().__init__(*who)
        self._leader = leader
        self._offset = 0
        self._unanswered: set[int] = set()
        """Commits that the client gave up: what went over a connection closed since may still arrive, after others."""

    async def run(self) -> None:
        while True:
            await self.pause(0.1)
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])
            answer = await self.ask(self.random.choice(self.brokers), request)
            if answer is None or answer.coordinators[0].error_code:
                continue
            broker = answer.coordinators[0].node_id
            for _ in range(self.random.randrange(10)):
                if not await self._commit(broker):
                    break
                await self._read(broker)
                await self.pause(0.05)

    async def _commit(self, broker: int) -> bool:
        self._offset += 1
        offset = self._offset
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topic_id = next((known for known, name in self.history.names.items() if name == STEADY), bytes(16))
        topic = OffsetCommitRequestTopic(name=STEADY, topic_id=topic_id, partitions=[partition])
        answer = await self.ask(broker, OffsetCommitRequest(group_id=GROUP, topics=[topic]))
        if answer is None:
            self._unanswered.add(offset)
        if answer is None or answer.topics[0].partitions[0].error_code:
            return False
        self.history.committed = max(self.history.committed, offset)
        self.world.note("committed", offset)
        return True

    async def _read(self, broker: int) -> None:
        """A deposed coordinator that does not know it yet may say what it remembers."""
        names = self.history.names
        offsets = Place(next((known for known, name in names.items() if name == "__consumer_offsets"), bytes(16)), 0)
        expected, leads = self.history.committed, self._leader(offsets) == broker
        topic_id = next((known for known, name in self.history.names.items() if name == STEADY), bytes(16))
        topic = OffsetFetchRequestTopics(name=STEADY, topic_id=topic_id, partition_indexes=[0])
        group = OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])
        answer = await self.ask(broker, OffsetFetchRequest(groups=[group]))
        if answer is None or answer.groups[0].error_code or not leads or self._leader(offsets) != broker:
            return
        found = answer.groups[0].topics[0].partitions[0]
        if (
            not found.error_code
            and found.committed_offset < expected
            and found.committed_offset not in self._unanswered
        ):
            raise Violation(f"committed offset {expected} of the group went back to {found.committed_offset}")


class Administrator(Client):
    """Creates and deletes topics, moves replicas and elects leaders."""

    def __init__(self, *who: Any, topics: Sequence[str] = (STEADY, LOOSE)) -> None:
        super().__init__(*who)
        self._topics = topics

    async def run(self) -> None:
        for name in self._topics:
            while name not in self.history.names.values():
                await self._create(name)
                await self.pause(0.2)
        while True:
            await self.pause(0.8)
            actions = self._make, self._delete, self._move, self._elect, self._flip, self._call_off, self._widen
            await self.random.choice(actions)()

    async def _create(self, name: str) -> None:
        controller = await self.controller()
        if controller is None:
            return
        assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=self.random.sample(self.brokers, 3))
            for index in range(1 if name == LOOSE else 2)
        ]
        configs = [CreatableTopicConfig(name="unclean.leader.election.enable", value="true")] if name == LOOSE else []
        topic = CreatableTopic(
            name=name, num_partitions=-1, replication_factor=-1, assignments=assignments, configs=configs
        )
        self.world.note("create", name)
        await self.ask(controller, CreateTopicsRequest(topics=[topic], timeout_ms=_REQUEST_MS // 2))

    def _brief_topics(self) -> list[bytes]:
        known = {place.topic_id for place in self.data_places()} - self.history.gone
        return sorted(topic_id for topic_id in known if self.history.names[topic_id] not in self._topics)

    async def _make(self) -> None:
        if len(self._brief_topics()) < 2:
            await self._create(f"brief-{self.random.randrange(2)}")

    async def _delete(self) -> None:
        topics = self._brief_topics()
        controller = await self.controller()
        if controller is None or not topics:
            return
        topic_id = self.random.choice(topics)
        self.history.gone.add(topic_id)
        self.world.note("delete", self.history.names[topic_id])
        state = DeleteTopicState(name=None, topic_id=topic_id)
        await self.ask(controller, DeleteTopicsRequest(topics=[state], timeout_ms=_REQUEST_MS // 2))

    async def _widen(self) -> None:
        """One more partition, for a topic that has not got one yet."""
        controller = await self.controller()
        topics = [topic_id for topic_id in self._brief_topics() if Place(topic_id, 2) not in self.partitions]
        if controller is None or not topics:
            return
        name = self.history.names[self.random.choice(topics)]
        assignments = [CreatePartitionsAssignment(broker_ids=self.random.sample(self.brokers, 3))]
        topic = CreatePartitionsTopic(name=name, count=3, assignments=assignments)
        self.world.note("widen", name)
        await self.ask(controller, CreatePartitionsRequest(topics=[topic], timeout_ms=_REQUEST_MS // 2))

    async def _move(self) -> None:
        await self._reassign(self.random.sample(self.brokers, 3))

    async def _flip(self) -> None:
        """Leaders change several times in a row, with nobody leaving the ISR."""
        controller = await self.controller()
        places = self.data_places()
        if controller is None or not places:
            return
        place = self.random.choice(places)
        for _ in range(self.random.randrange(2, 5)):
            replicas = self.assigned.get(place, [])
            await self._reassign_to(controller, place, [*replicas[1:], *replicas[:1]])
            self.assigned[place] = [*replicas[1:], *replicas[:1]]
            await self._elect_at(controller)

    async def _call_off(self) -> None:
        if self.random.random() < 0.3:
            await self._reassign(None)

    async def _reassign(self, replicas: list[int] | None) -> None:
        controller = await self.controller()
        places = self.data_places()
        if controller is None or not places:
            return
        await self._reassign_to(controller, self.random.choice(places), replicas)

    async def _reassign_to(self, controller: int, place: Place, replicas: list[int] | None) -> None:
        partition = ReassignablePartition(partition_index=place.partition, replicas=replicas)
        topic = ReassignableTopic(name=self.history.names[place.topic_id], partitions=[partition])
        self.world.note("reassign", place, replicas)
        await self.ask(controller, AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=_REQUEST_MS // 2))

    async def _elect(self) -> None:
        controller = await self.controller()
        if controller is not None:
            await self._elect_at(controller)

    async def _elect_at(self, controller: int) -> None:
        self.world.note("elect preferred leaders")
        request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=_REQUEST_MS // 2)
        await self.ask(controller, request)


def values_in(view: memoryview) -> list[tuple[int, bytes]]:
    """Offsets and values of whole batches, up to one that fails its checksum or is cut off."""
    found = []
    at = 0
    while len(view) - at > BATCH_HEADER.size:
        header = BATCH_HEADER.unpack_from(view, at)
        end = at + 12 + header[1]
        if end > len(view) or not crc_matches(view, at, header):
            break
        found += [(record.offset, record.value or b"") for record in iter_records(view, at, header)]
        at = end
    return found
