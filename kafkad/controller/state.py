"""The controller's view of the cluster: brokers, topics, partitions. In memory only; the store has the truth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kafkad.controller.placement import Candidate, candidates
from kafkad.errors import ErrorCode, KafkaError
from kafkad.meta.znodes import Topic
from kafkad.model import ASKED_BY_TURNS, NO_LEADER, Asked, BrokerInfo, PartitionAssignment, PartitionState
from kafkad.names import TopicPartition


class PartitionEntry:
    """`state` is None until the partition had its first leader."""

    __slots__ = ("assignment", "state")

    def __init__(self, assignment: PartitionAssignment, state: PartitionState | None = None) -> None:
        self.assignment = assignment
        self.state = state


class TopicEntry:
    __slots__ = ("name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: bytes) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: dict[int, PartitionEntry] = {}

    def znode(self) -> Topic:
        return Topic(topic_id=self.topic_id, partitions={p: e.assignment for p, e in self.partitions.items()})


_REMEMBERED_PARTITIONS = 10_000
_MOST_ROUNDS = 12
"""An hour, at one round in five minutes."""


class DeletedTopics:
    """The topics that were deleted last in this term, for brokers that were away then and are not told all topics, or
    do not heed that (`ALL_TOPICS`). Bounded by their partitions."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicEntry] = {}
        self._partitions = 0

    def __iter__(self) -> Iterator[TopicEntry]:
        return iter(self._topics.values())

    def add(self, topic: TopicEntry) -> None:
        self.discard(topic.name)
        self._topics[topic.name] = topic
        self._partitions += len(topic.partitions)
        while self._partitions > _REMEMBERED_PARTITIONS:
            self.discard(next(iter(self._topics)))

    def discard(self, name: str) -> None:
        topic = self._topics.pop(name, None)
        if topic is not None:
            self._partitions -= len(topic.partitions)


class _Refusals:
    """How a replica was asked to lead last, and how at most when it refused; how often it did, and for how many rounds
    more the balance passes over it."""

    __slots__ = ("asked", "refused", "rounds", "times")

    def __init__(self) -> None:
        self.asked = Asked.IN_SYNC
        self.refused: Asked | None = None
        self.times = 0
        self.rounds = 0


class RefusedLeaderships:
    """Replicas that were to lead and did not. The balance passes over them, for one round at first and for longer each
    time: nothing tells the controller when one can lead again, and each refusal moves the leadership twice.

    An unclean election asks the last one in sync again: it may have refused only since it lacks its last records. Then
    it asks the others: each may have been gone, and refuse for the sake of another. Where all have refused, it asks
    those that have got a part again, and then one as the last: only a disk refuses that. When one leads, the next
    election begins anew.
    """

    def __init__(self) -> None:
        self._refusals: dict[TopicPartition, dict[int, _Refusals]] = {}

    def __contains__(self, tp: TopicPartition) -> bool:
        """True if one of its replicas has refused, or is asked by an unclean election."""
        return tp in self._refusals

    def add(self, broker: int, tp: TopicPartition) -> None:
        refusals = self._made(broker, tp)
        refusals.refused = max(refusals.asked, refusals.refused or Asked.IN_SYNC)
        refusals.rounds = min(2**refusals.times, _MOST_ROUNDS)
        refusals.times += 1

    def passed_over(self, broker: int, tp: TopicPartition) -> bool:
        refusals = self._known(broker, tp)
        return refusals is not None and refusals.rounds > 0

    def round_ended(self) -> None:
        for of_partition in self._refusals.values():
            for refusals in of_partition.values():
                refusals.rounds = max(0, refusals.rounds - 1)

    def ask(self, broker: int, tp: TopicPartition) -> None:
        """By an election among those in sync."""
        refusals = self._known(broker, tp)
        if refusals is not None:
            refusals.asked = Asked.IN_SYNC

    def ask_uncleanly(self, broker: int, tp: TopicPartition) -> None:
        """In the way that comes after those that it has refused."""
        refusals = self._made(broker, tp)
        refusals.asked = Asked(min((refusals.refused or Asked.IN_SYNC) + 1, Asked.AS_THE_LAST))

    def asked(self, broker: int, tp: TopicPartition) -> Asked:
        """How it was asked last, unless it has led since."""
        refusals = self._known(broker, tp)
        return Asked.IN_SYNC if refusals is None else refusals.asked

    def of(self, tp: TopicPartition) -> dict[int, Asked]:
        """The brokers that have refused to lead it, and how at most they were asked."""
        return {
            broker: refusals.refused
            for broker, refusals in self._refusals.get(tp, {}).items()
            if refusals.refused is not None
        }

    def begin_anew(self, tp: TopicPartition) -> None:
        """The next unclean election asks all again whose disks have not refused."""
        for refusals in self._refusals.get(tp, {}).values():
            if refusals.refused in ASKED_BY_TURNS:
                refusals.refused = Asked.IN_SYNC

    def serves(self, broker: int, tp: TopicPartition) -> None:
        """Its disk does not refuse any more."""
        refusals = self._known(broker, tp)
        if refusals is not None and refusals.refused is Asked.AS_THE_LAST:
            refusals.refused = None

    def joins_isr(self, broker: int, tp: TopicPartition) -> None:
        """It has all records, whatever it refused for before."""
        refusals = self._known(broker, tp)
        if refusals is not None:
            refusals.refused = None

    def leads(self, broker: int, tp: TopicPartition) -> None:
        self.begin_anew(tp)
        self._refusals.get(tp, {}).pop(broker, None)
        if not self._refusals.get(tp):
            self._refusals.pop(tp, None)

    def _known(self, broker: int, tp: TopicPartition) -> _Refusals | None:
        return self._refusals.get(tp, {}).get(broker)

    def _made(self, broker: int, tp: TopicPartition) -> _Refusals:
        return self._refusals.setdefault(tp, {}).setdefault(broker, _Refusals())

    def forget_broker(self, broker: int) -> None:
        for of_partition in self._refusals.values():
            of_partition.pop(broker, None)
        self._refusals = {tp: left for tp, left in self._refusals.items() if left}

    def forget_topic(self, topic: str) -> None:
        self._refusals = {tp: refusals for tp, refusals in self._refusals.items() if tp.topic != topic}


class ClusterState:
    """`brokers` are all registered ones that answer; those in `leaving` are shutting down and get no new duties."""

    def __init__(self) -> None:
        self.brokers: dict[int, BrokerInfo] = {}
        self.unreachable: dict[int, BrokerInfo] = {}
        """Registered brokers that do not answer. They are not among `brokers`."""
        self.leaving: set[int] = set()
        self.topics: dict[str, TopicEntry] = {}
        self.names: dict[bytes, str] = {}
        self.unreadable: set[str] = set()
        """Topics that cannot be read, or whose id the store refuses: brokers may know and serve what is not here."""
        self.deleting: dict[str, Deletion] = {}
        self.deleted = DeletedTopics()
        self.reassigning: set[TopicPartition] = set()
        self.left_over: set[TopicPartition] = set()
        """Partitions with a member of the ISR that was no replica when their states were read, or could not be dropped
        from the ISR after that."""
        self.failed_replicas: dict[int, set[TopicPartition]] = {}
        self.refused = RefusedLeaderships()

    def clear(self) -> None:
        """Its term is over. What still keeps this then, as a cycle of parts that is in no collection of garbage any
        more, keeps no topics with it."""
        vars(self).update(vars(ClusterState()))

    @property
    def live(self) -> set[int]:
        return self.brokers.keys() - self.leaving

    @property
    def candidates(self) -> list[Candidate]:
        return candidates([b for b in self.brokers.values() if b.id not in self.leaving])

    def online(self, broker: int, tp: TopicPartition) -> bool:
        """True if that replica can serve: its broker is there, and so is the log directory that holds it."""
        return broker in self.brokers and tp not in self.failed_replicas.get(broker, ())

    def electable(self, tp: TopicPartition, replicas: Iterable[int]) -> set[int]:
        return {r for r in replicas if r not in self.leaving and self.online(r, tp)}

    def refusals(self, tp: TopicPartition) -> dict[int, Asked]:
        """Those that have refused to lead, and how at most they were asked."""
        return {broker: how for broker, how in self.refused.of(tp).items() if broker not in self.leaving}

    def leaving_and_unasked(self, tp: TopicPartition, replicas: Iterable[int]) -> set[int]:
        """Those that shut down, and might lead with what they have when they are back."""
        refused = self.refused.of(tp)
        return {
            r
            for r in replicas
            if r in self.leaving and (refused.get(r) is Asked.IN_SYNC or (r not in refused and self.online(r, tp)))
        }

    def note_elected(self, leader: int, tp: TopicPartition, *, in_sync: bool) -> bool:
        """True if the election was unclean: the leader was not in sync, or has failed. It counts as there unless it
        refuses."""
        failed = self.failed_replicas.get(leader, set())
        unclean = tp in failed or not in_sync
        if unclean:
            self.refused.ask_uncleanly(leader, tp)
        else:
            self.refused.ask(leader, tp)
        failed.discard(tp)
        return unclean

    def going(self, topic: str) -> bool:
        """True if the topic is being deleted. A partition that is on the move has to arrive first."""
        deletion = self.deleting.get(topic)
        return deletion is not None and (deletion.begun or not self.moving(topic))

    def moving(self, topic: str) -> bool:
        return bool(self.reassigning) and any(tp.topic == topic for tp in self.reassigning)

    def add_topic(self, topic: TopicEntry) -> None:
        self.topics[topic.name] = topic
        self.names[topic.topic_id] = topic.name
        self.deleted.discard(topic.name)

    def remove_topic(self, name: str) -> None:
        topic = self.topics.pop(name, None)
        if topic is not None:
            self.names.pop(topic.topic_id, None)
            self.deleted.add(topic)
            partitions = [TopicPartition(name, partition) for partition in topic.partitions]
            self.reassigning.difference_update(partitions)
            self.left_over.difference_update(partitions)
        self.deleting.pop(name, None)
        self.unreadable.discard(name)
        for failed in self.failed_replicas.values():
            failed.difference_update([tp for tp in failed if tp.topic == name])
        self.refused.forget_topic(name)

    def has(self, tp: TopicPartition) -> bool:
        topic = self.topics.get(tp.topic)
        return topic is not None and tp.partition in topic.partitions

    def entry(self, tp: TopicPartition) -> PartitionEntry:
        """Raises UNKNOWN_TOPIC_OR_PARTITION."""
        topic = self.topics.get(tp.topic)
        entry = topic.partitions.get(tp.partition) if topic else None
        if entry is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
        return entry

    def leader(self, tp: TopicPartition) -> int:
        """NO_LEADER also for one that never had any. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        state = self.entry(tp).state
        return NO_LEADER if state is None else state.leader

    def partitions(self) -> Iterator[tuple[TopicPartition, PartitionEntry]]:
        for name, topic in self.topics.items():
            for number, entry in topic.partitions.items():
                yield TopicPartition(name, number), entry

    def replicas_on(self, brokers: Iterable[int]) -> list[TopicPartition]:
        wanted = set(brokers)
        return [tp for tp, entry in self.partitions() if not wanted.isdisjoint(entry.assignment.replicas)]


class Deletion:
    """A topic on its way out.

    `waiting` are the replicas (broker, partition) that have not confirmed; `stuck` those that cannot at present. It has
    `begun` unless a reassignment has to end first.
    """

    __slots__ = ("begun", "stuck", "waiting")

    def __init__(self) -> None:
        self.waiting: set[tuple[int, int]] = set()
        self.stuck: set[tuple[int, int]] = set()
        self.begun = False
