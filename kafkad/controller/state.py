"""The controller's view of the cluster: brokers, topics, partitions. In memory only; the store has the truth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kafkad.controller.placement import Candidate, candidates
from kafkad.errors import ErrorCode, KafkaError
from kafkad.meta.znodes import Topic
from kafkad.model import NO_LEADER, BrokerInfo, PartitionAssignment, PartitionState
from kafkad.names import TopicPartition


class PartitionEntry:
    """`state` is None until the partition had its first leader. `before_unclean` is that before an unclean election
    whose leader has not said yet that it leads: if all refuse, it holds again."""

    __slots__ = ("assignment", "before_unclean", "state")

    def __init__(self, assignment: PartitionAssignment, state: PartitionState | None = None) -> None:
        self.assignment = assignment
        self.state = state
        self.before_unclean: PartitionState | None = None


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
    """How often a replica has refused to lead, for how many rounds more the balance passes over it, and whether it is
    `pressed` now: asked to lead with what it has."""

    __slots__ = ("pressed", "rounds", "times")

    def __init__(self) -> None:
        self.times = 0
        self.rounds = 0
        self.pressed = False


class RefusedLeaderships:
    """Replicas that were to lead and did not. The balance passes over them, for one round at first and for longer each
    time: nothing tells the controller when one can lead again, and each refusal moves the leadership twice.

    An unclean election presses the last one in sync, once: it may have refused only since it lacks its last records.
    One that was not in sync is pressed by it, too: it may have nothing, and refuse for the sake of others.
    """

    def __init__(self) -> None:
        self._refusals: dict[int, dict[TopicPartition, _Refusals]] = {}

    def add(self, broker: int, tp: TopicPartition) -> None:
        refusals = self._refusals.setdefault(broker, {}).setdefault(tp, _Refusals())
        refusals.rounds = min(2**refusals.times, _MOST_ROUNDS)
        refusals.times += 1

    def has(self, broker: int) -> bool:
        return bool(self._refusals.get(broker))

    def passed_over(self, broker: int, tp: TopicPartition) -> bool:
        refusals = self._refusals.get(broker, {}).get(tp)
        return refusals is not None and refusals.rounds > 0

    def round_ended(self) -> None:
        for of_broker in self._refusals.values():
            for refusals in of_broker.values():
                refusals.rounds = max(0, refusals.rounds - 1)

    def press(self, broker: int, tp: TopicPartition) -> None:
        self._refusals.setdefault(broker, {}).setdefault(tp, _Refusals()).pressed = True

    def asked_again(self, broker: int, tp: TopicPartition) -> None:
        """By an election among those in sync."""
        refusals = self._refusals.get(broker, {}).get(tp)
        if refusals is not None:
            refusals.pressed = False

    def reluctant(self, broker: int, tp: TopicPartition) -> bool:
        """True if it has refused, and was not pressed."""
        refusals = self._refusals.get(broker, {}).get(tp)
        return refusals is not None and refusals.times > 0 and not refusals.pressed

    def pressed(self, broker: int, tp: TopicPartition) -> bool:
        """True if it was pressed, and has not led since."""
        refusals = self._refusals.get(broker, {}).get(tp)
        return refusals is not None and refusals.pressed

    def forget(self, broker: int, tp: TopicPartition) -> None:
        """It leads."""
        self._refusals.get(broker, {}).pop(tp, None)

    def forget_broker(self, broker: int) -> None:
        self._refusals.pop(broker, None)

    def forget_topic(self, topic: str) -> None:
        for broker, of_broker in self._refusals.items():
            self._refusals[broker] = {tp: refusals for tp, refusals in of_broker.items() if tp.topic != topic}


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

    def reluctant(self, tp: TopicPartition, replicas: Iterable[int]) -> set[int]:
        """Those that have refused to lead, and may do it with what they have if they are asked to."""
        return {r for r in replicas if r not in self.leaving and self.refused.reluctant(r, tp)}

    def note_elected(self, leader: int, tp: TopicPartition, *, in_sync: bool) -> bool:
        """True if the election was unclean: the leader was not in sync, or has failed. It is pressed to lead, and
        counts as there unless it refuses."""
        failed = self.failed_replicas.get(leader, set())
        unclean = tp in failed or not in_sync
        if unclean:
            self.refused.press(leader, tp)
        else:
            self.refused.asked_again(leader, tp)
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
