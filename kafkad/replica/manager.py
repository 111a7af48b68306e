"""Every partition this broker holds. The controller's requests change them; produce and fetch look them up here."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

from kafkad.cluster.absent import AbsentBrokers
from kafkad.config import LogConfig
from kafkad.errors import ErrorCode, KafkaError, StorageError
from kafkad.log.directories import LogDirectory, NameTakenError
from kafkad.log.files import lacks_open_files, lacks_room, may_pass
from kafkad.log.manager import LogManager, NoLogDirectoryError
from kafkad.metrics import TopicProbes
from kafkad.model import ALL_TOPICS, NO_EPOCH
from kafkad.names import TopicId, TopicPartition, id_text, is_another_topic, name_problem
from kafkad.replica.cuts import Cuts
from kafkad.replica.full_disks import FullDisks
from kafkad.replica.lost_tails import LostTails
from kafkad.replica.partition import Partition, ReplicaParts, Role
from kafkad.replica.prompt_disks import PromptDisks
from kafkad.replica.put_away import PutAwayLogs
from kafkad.turns import Pieces, Turns
from kafkad.wire.leaders import CurrentLeader
from kafkad.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
)
from kafkad.wire.messages.stop_replica import StopReplicaPartitionError, StopReplicaRequest, StopReplicaResponse
from kafkad.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse

log = logging.getLogger(__name__)

_Given = tuple[LeaderAndIsrTopicState, LeaderAndIsrPartitionState, LeaderAndIsrPartitionError]
_Deleted = tuple[TopicPartition, Collection[LogDirectory], StopReplicaPartitionError]
_NOTHING: Mapping[int, Partition] = MappingProxyType({})
_REMINDER_MS = 60_000
_GONE_REST_MS = 60_000
_CHANGED_AT_ONCE = 500
_LOOKED_AT_A_TURN = 200
_EPOCHS_THAT_SKIP_THE_CHECK = (-1, -2)
"""StopReplica says -2 when the topic is deleted, -1 when the controller does not know."""


class _Refused(NamedTuple):
    """What it takes to make a replica that could not be made."""

    topic_id: bytes
    is_new: bool
    since_ms: float
    taken: str = ""
    """What has its name and is to be moved away, as the log was told."""
    for_good: bool = False
    """True if it cannot be made before the broker restarts: it may be in a log directory that is offline."""


class ReplicaManager:
    def __init__(
        self,
        parts: ReplicaParts,
        logs: LogManager,
        topic_config: Callable[[str], LogConfig],
        load_configs: Callable[[Iterable[str]], Awaitable[None]],
        halt: Callable[[str], None],
    ) -> None:
        """`load_configs` reads the settings of topics that are new here, before `topic_config` is asked for them;
        `halt` ends the broker: its last log directory has failed."""
        self.parts = parts
        self.broker_id = parts.broker_id
        self.broker_epoch = -1
        self.logs = logs
        self.metadata = parts.metadata
        self.metadata.on_topic_gone.append(self._topic_changed)
        self.waits = parts.waits
        self.durable = parts.durable
        self.durable.on_failure = self.directory_failed
        self.cuts = Cuts(logs, self.durable)
        self._disks = PromptDisks(self.durable, parts.clock, parts.waits.timers)
        self._put_away = PutAwayLogs(logs, self._disks)
        self.probes = TopicProbes()
        self._topic_config = topic_config
        self._load_configs = load_configs
        self.controller_epoch = 0
        self.absent = AbsentBrokers()
        self._one_request = asyncio.Lock()
        """Held while a request of a controller is carried out: two controllers may send at the same time."""
        self._partitions: dict[str, dict[int, Partition]] = {}
        self._halt = halt
        self.isr_shrinks = self.isr_expands = 0
        """Counts of ISR shrinks and expansions of partitions led here."""
        self.isr_failures = 0
        """Count of changes of an ISR that the controller did not make."""
        self._silent_until: dict[tuple[str, str], float] = {}
        """By log directory and remedy."""
        self.lost_tails = LostTails(parts.broker_id, parts.metadata)
        self.giving_way: Set[tuple[TopicPartition, int]] = frozenset()
        """What is led here with a damaged log and is to be led elsewhere, with the leader epoch (`mending`)."""
        self._full_disks = FullDisks(parts.broker_id, parts.metadata)
        self._refused: dict[TopicPartition, _Refused] = {}
        """What a disk did not allow, for it is full or slow, or no more files can be opened; what waits for somebody to
        move away what has its name; and what a log directory that is offline may have. Offline for the controller."""
        self.on_topics_deleted: list[Callable[[list[str]], None]] = []
        """Called with topics that the cluster has no more."""
        self.on_topic_changed: list[Callable[[str], None]] = []
        """Called with a topic when a partition of it that is here gets another role, is taken away or loses its disk,
        and when the topic is deleted, or recreated under the same name."""
        self.ask_for_leader_and_isr: Callable[[], None] = lambda: None
        """Have the controller send LeaderAndIsr again, by `/log_dir_event_notification`: replicas are offline with
        their log directory or have come back, or another is to lead."""
        self.on_roles_changed: Callable[[Sequence[Partition]], None] = lambda partitions: None
        """Called with partitions that a request gave other roles or epochs or took away, or that lost their disk, some
        hundreds at a time."""
        self.role_watchers: dict[str, Callable[[Partition], None]] = {}
        """Callbacks by topic, for a partition of it that changes its role here, is taken away, or loses its disk."""
        logs.on_failure = self._directory_lost
        logs.in_pieces = self._work_in_pieces

    # -- look-ups --------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Partition]:
        return chain.from_iterable(map(dict.values, self._partitions.values()))

    def find(self, topic: str, index: int) -> Partition | None:
        partitions = self._partitions.get(topic)
        return partitions.get(index) if partitions else None

    def of_topic(self, topic: str) -> Mapping[int, Partition]:
        return self._partitions.get(topic, _NOTHING)

    def get(self, topic: str, index: int) -> Partition:
        """The replica here; NOT_LEADER_OR_FOLLOWER when only other brokers have it, UNKNOWN_... when none has."""
        partition = self.find(topic, index)
        if partition is None:
            self.metadata.partition(topic, index)
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker has no replica of {topic}-{index}")
        if partition.failure is not None:
            raise partition.failure
        return partition

    def leader(self, topic: str, index: int, current_leader_epoch: int = NO_EPOCH) -> Partition:
        """HOT."""
        partition = self.find(topic, index)
        if (
            partition is None
            or not partition.is_leader
            or partition.failure is not None
            or current_leader_epoch != NO_EPOCH
        ):
            partition = self.get(topic, index)
            partition.check_leader(current_leader_epoch)
        return partition

    def current_leader(self, topic: str, index: int) -> CurrentLeader:
        """The leader of a partition: as its replica here was told, which is before all brokers know it."""
        partition = self.find(topic, index)
        if partition is not None and partition.failure is None:
            return CurrentLeader(partition.role.leader, partition.leader_epoch)
        return self.metadata.current_leader(topic, index)

    @property
    def refused_count(self) -> int:
        """Replicas that are to be here, and that the disks do not let be made or opened."""
        return len(self._refused)

    def high_watermarks(self, of: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """For checkpoints. Of a log that has lost its tail the one from before, until the tail is there again."""
        topics = self._partitions
        offsets = {
            tp: p.high_watermark
            for tp in of
            if (p := topics.get(tp.topic, _NOTHING).get(tp.partition)) is not None and p.failure is None
        }
        self.lost_tails.raise_to_promised(offsets)
        return offsets

    # -- what the controller says ----------------------------------------------------------------------------------

    async def leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        async with self._one_request:
            return await self._lead_and_follow(request)

    async def update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        async with self._one_request:
            return await self._update_metadata(request)

    async def stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        async with self._one_request:
            return await self._stop_all(request)

    async def _lead_and_follow(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        refused = self._refuse(request.controller_epoch, request.broker_epoch)
        if refused:
            return LeaderAndIsrResponse(error_code=refused)
        response = LeaderAndIsrResponse()
        # What is here comes first: an election waits neither for the disks nor for the metadata store.
        here: list[_Given] = []
        new: list[_Given] = []
        turns = Turns()
        for topic in request.topic_states:
            answers: list[LeaderAndIsrPartitionError] = []
            response.topics.append(LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=answers))
            for state in topic.partition_states:
                answers.append(LeaderAndIsrPartitionError(partition_index=state.partition_index))
                known = self.find(topic.topic_name, state.partition_index)
                (new if known is None else here).append((topic, state, answers[-1]))
                await turns.give_way()
        await self._apply_states(here)
        if new:
            named = [TopicPartition(topic.topic_name, state.partition_index) for topic, state, _ in new]
            await self._load_configs({tp.topic for tp in named if tp.topic not in self._partitions})
            await self._disks.do(self.logs.forget_predecessors(named))
            await self._apply_states(new)
        return response

    async def _apply_states(self, given: Iterable[_Given]) -> None:
        self.cuts.begin()
        turns = Turns()
        changed: list[Partition] = []
        try:
            for topic, state, answer in given:
                answer.error_code = self._apply_state(topic, state, changed)
                await turns.give_way()
                if len(changed) >= _CHANGED_AT_ONCE:
                    self.on_roles_changed(changed)
                    changed = []
        finally:  # a controller that resigns gives up a request half-way, and nobody repeats what has been done of it
            self.on_roles_changed(changed)
            self.cuts.begin()

    async def _update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        refused = self._refuse(request.controller_epoch, request.broker_epoch)
        if not refused:
            before = self.metadata.brokers
            deleted = self.metadata.apply(request)
            self.absent.observe(before, self.metadata.brokers, self.logs.clock.now_ms())
            if self.lost_tails.refused and self.lost_tails.led_elsewhere():
                self.ask_for_leader_and_isr()
            if deleted:
                for told in self.on_topics_deleted:
                    told(deleted)
            await self._leave_to_others(request)
            if request.type == ALL_TOPICS:
                await self._leave_what_is_gone()
        return UpdateMetadataResponse(error_code=refused)

    async def _leave_to_others(self, request: UpdateMetadataRequest) -> None:
        """Gives up replicas that only other brokers have in a later leader epoch, and those of an earlier topic of the
        same name. A StopReplica says so too, but not to a broker that was cut off when they were moved: it would go on
        leading. The logs stay, until a StopReplica deletes them."""
        turns = Turns()
        refused = {tp.topic for tp in self._refused}
        for topic in request.topic_states:
            here = self.of_topic(topic.topic_name)
            for state in topic.partition_states if here or topic.topic_name in refused else ():
                await turns.give_way()
                tp = TopicPartition(topic.topic_name, state.partition_index)
                partition = here.get(state.partition_index)
                is_elsewhere = self.broker_id not in state.replicas
                waiting = self._refused.get(tp)
                if waiting is not None and (is_elsewhere or is_another_topic(waiting.topic_id, topic.topic_id)):
                    del self._refused[tp]
                if partition is None:
                    continue
                if is_another_topic(partition.log.topic_id, topic.topic_id):
                    self._give_up_predecessor(partition)
                elif is_elsewhere and state.leader_epoch > partition.leader_epoch:
                    log.info("%s is given up here: brokers %s have it now", tp, state.replicas)
                    self._give_up(partition)

    async def _leave_what_is_gone(self) -> None:
        """Gives up the replicas of topics that the cluster has no more. The logs stay here, too."""
        for tp in [tp for tp in self._refused if tp.topic not in self.metadata.topics]:
            del self._refused[tp]
        turns = Turns()
        for topic in self._partitions.keys() - self.metadata.topics.keys():
            for partition in list(self.of_topic(topic).values()):
                await turns.give_way()
                log.info("%s is given up here: there is no such topic any more", partition.tp)
                self._give_up(partition)

    def _give_up_predecessor(self, partition: Partition) -> None:
        log.info("%s is given up here: its log is of an earlier topic of this name", partition.tp)
        self._give_up(partition)

    async def _stop_all(self, request: StopReplicaRequest) -> StopReplicaResponse:
        refused = self._refuse(request.controller_epoch, request.broker_epoch)
        if refused:
            return StopReplicaResponse(error_code=refused)
        response = StopReplicaResponse()
        deleted: list[_Deleted] = []
        turns = Turns()
        for topic in request.topic_states:
            for state in topic.partition_states:
                tp = TopicPartition(topic.topic_name, state.partition_index)
                code = self._stop(tp, state.leader_epoch, state.delete_partition)
                error = StopReplicaPartitionError(topic_name=tp.topic, partition_index=tp.partition, error_code=code)
                response.partition_errors.append(error)
                if state.delete_partition and not code:
                    deleted.append((tp, self._put_away.mark_places(tp), error))
                await turns.give_way()
        if deleted:
            await self._settle_deletions(deleted)
        return response

    async def _settle_deletions(self, deleted: list[_Deleted]) -> None:
        """The topic is forgotten once this is answered: its old logs must not come back under a new one's name. Those
        of which a disk does not say so are not deleted yet; the controller asks again."""
        await self._put_away.have_known({place for _, places, _ in deleted for place in places})
        for tp, places, answer in deleted:
            if not self._put_away.is_known(tp, places):
                answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR

    def _refuse(self, controller_epoch: int, broker_epoch: int) -> ErrorCode:
        if controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if broker_epoch != -1 and broker_epoch < self.broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        self.controller_epoch = controller_epoch
        return ErrorCode.NONE

    def _apply_state(
        self, topic: LeaderAndIsrTopicState, state: LeaderAndIsrPartitionState, changed: list[Partition]
    ) -> ErrorCode:
        tp = TopicPartition(topic.topic_name, state.partition_index)
        known = self.find(*tp)
        if known is not None and known.failure is None and is_another_topic(known.log.topic_id, topic.topic_id):
            self._give_up_predecessor(known)
            known = None
        answer = self._answer_new(tp, topic.topic_id, state) if known is None else self._refuse_role(tp, state, known)
        if answer is not None:
            return answer
        try:
            partition = known or self._open(tp, topic.topic_id, state.is_new)
            if not self.lost_tails.may_take(partition, state):
                return ErrorCode.KAFKA_STORAGE_ERROR
            elected = state.leader == self.broker_id and not (known is not None and known.is_leader)
            if elected and self._is_to_be_mended(partition, state.isr):
                return ErrorCode.KAFKA_STORAGE_ERROR
            self._give_role(partition, state)
            changed.append(partition)
            self._tell_role_watcher(partition)
            if known is not None:
                self._topic_changed(tp.topic)
        except StorageError as error:
            self.directory_failed(error)
            self._note_refused(tp, self._refused_of(topic.topic_id, state, for_good=not may_pass(error)))
            return error.code
        except NameTakenError as error:
            self._wait_for_name(tp, self._refused_of(topic.topic_id, state, taken=str(error)))
            return error.code
        except KafkaError as error:
            log.error("cannot become leader or follower of %s: %s", tp, error)
            if error.code == ErrorCode.KAFKA_STORAGE_ERROR:
                self._note_refused(tp, self._refused_of(topic.topic_id, state, for_good=True))
            return error.code
        return ErrorCode.NONE

    def _give_role(self, partition: Partition, state: LeaderAndIsrPartitionState) -> None:
        before = len(partition.role.isr) if partition.is_leader else len(state.isr)
        self.isr_shrinks += len(state.isr) < before
        self.isr_expands += len(state.isr) > before
        partition.become(
            Role(
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                partition_epoch=state.partition_epoch,
                isr=tuple(state.isr),
                replicas=tuple(state.replicas),
            )
        )
        if state.leader_recovery_state:
            partition.log.producers.forget_past()  # what is lost may have named producers

    def _answer_new(self, tp: TopicPartition, topic_id: TopicId, state: LeaderAndIsrPartitionState) -> ErrorCode | None:
        """Of a replica that is not here. None where it is to be made."""
        refused = _refuse_name(tp)
        if refused is not None or tp not in self.lost_tails.gone:
            return refused
        unclean = self._topic_config(tp.topic).unclean_leader_election
        return self.lost_tails.answer_instead_of_making(tp, topic_id, state, unclean=unclean)

    def _refuse_role(self, tp: TopicPartition, state: LeaderAndIsrPartitionState, known: Partition) -> ErrorCode | None:
        if self._full_disks.refuses(tp):
            return ErrorCode.KAFKA_STORAGE_ERROR
        if known.failure is not None:
            return known.failure.code
        if _is_news(state, known):
            return None
        is_asked_about = (tp, known.leader_epoch) in self.giving_way
        gives_way = is_asked_about and known.is_leader and self._is_to_be_mended(known, known.role.isr)
        return ErrorCode.KAFKA_STORAGE_ERROR if gives_way else ErrorCode.STALE_CONTROLLER_EPOCH

    def _is_to_be_mended(self, partition: Partition, isr: Collection[int]) -> bool:
        """True if the log is damaged and another replica in sync can lead, so that this one can be mended from it."""
        if not partition.log.is_damaged or len(isr) < 2:
            return False
        self.lost_tails.refused.add(partition.tp)
        log.error("%s has to be led elsewhere: the damaged log here is mended from another replica", partition.tp)
        return True

    def _open(self, tp: TopicPartition, topic_id: bytes, is_new: bool) -> Partition:
        config = self._topic_config(tp.topic)
        opened = self.logs.create(tp, topic_id, config, is_new=is_new)
        if opened.config != config:  # adopted: its settings were decided on after it was opened
            opened.update_config(config)
        high_watermark = self.logs.checkpointed_high_watermark(tp)
        self.lost_tails.note(tp, opened.whole_until, self.logs.promised(tp, opened))
        partition = Partition(tp, opened, self.parts, self.probes[tp.topic], high_watermark)
        self._partitions.setdefault(tp.topic, {})[tp.partition] = partition
        self._refused.pop(tp, None)
        return partition

    def _refused_of(
        self, topic_id: TopicId, state: LeaderAndIsrPartitionState, *, taken: str = "", for_good: bool = False
    ) -> _Refused:
        return _Refused(topic_id, state.is_new, self.logs.clock.monotonic_ms(), taken, for_good)

    def _note_refused(self, tp: TopicPartition, refused: _Refused) -> None:
        """Of one that is not here. What can be made without a restart goes before."""
        if self.find(*tp) is not None:
            return
        if refused.for_good:
            self._refused.setdefault(tp, refused)
        else:
            self._refused[tp] = refused

    def _wait_for_name(self, tp: TopicPartition, refused: _Refused) -> None:
        before = self._refused.get(tp)
        if before is None or before.taken != refused.taken:
            log.error("cannot make a replica of %s: %s; it is made once that is gone", tp, refused.taken)
        self._refused[tp] = refused

    async def forget_predecessors_of_refused(self) -> None:
        """So that `make_what_was_refused` can make them."""
        async with self._one_request:
            await self._disks.do(self.logs.forget_predecessors(self._refused_for_now()))

    def _refused_for_now(self) -> list[TopicPartition]:
        return [tp for tp, refused in self._refused.items() if not refused.for_good]

    def make_what_was_refused(self) -> Iterator[TopicPartition]:
        """Try again to make replicas that were refused, and have those back that have left their ISRs for want
        of room; the controller then asks about them."""
        made = []
        for tp in list(filter(self.lost_tails.may_be_made, self._refused_for_now())):
            try:
                refused = self._refused.get(tp)
                if refused is not None and self.find(*tp) is None:
                    self._open(tp, refused.topic_id, refused.is_new)
                    made.append(tp)
                self._refused.pop(tp, None)
            except StorageError as error:
                self.directory_failed(error)
                if (lacks_room(error) or lacks_open_files(error)) and self.logs.preferred(tp) is None:
                    break  # the others would lack it too
            except NameTakenError as error:
                self._wait_for_name(tp, self._refused[tp]._replace(taken=str(error)))
            except KafkaError as error:
                log.error("cannot make a replica of %s, which was refused before: %s", tp, error)
                del self._refused[tp]
            yield tp
        if made:
            log.info("created %d partitions that were refused before", len(made))
        if self._full_disks.come_back(self.logs.has_room) or made or self._forget_gone_that_waited_for_room():
            self.ask_for_leader_and_isr()
        for directory in self._full_disks.recovered(self.logs.has_room, self.logs.clock.monotonic_ms()):
            log.info("log directory %s takes records again: there is room", directory)

    def _forget_gone_that_waited_for_room(self) -> bool:
        """Forgets that replicas were refused which are gone, found no room or their names taken, have rested, and have
        no leader to follow, if there is room. True if there were any: the controller counts them as failed until it has
        asked again, which may elect one of them."""
        before_ms = self.logs.clock.monotonic_ms() - _GONE_REST_MS
        waiting = [
            tp
            for tp, refused in self._refused.items()
            if not (refused.for_good or refused.since_ms > before_ms or self.lost_tails.may_be_made(tp))
        ]
        if not waiting or not any(self.logs.has_room(directory.path) for directory in self.logs.live):
            return False
        for tp in waiting:
            del self._refused[tp]
        return True

    def _stop(self, tp: TopicPartition, leader_epoch: int, delete: bool) -> ErrorCode:
        partition = self.find(*tp)
        may_be_late = leader_epoch not in _EPOCHS_THAT_SKIP_THE_CHECK
        if partition is not None and may_be_late and leader_epoch < partition.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        self._refused.pop(tp, None)
        if delete:
            self.lost_tails.forget(tp)
        if partition is not None:
            self._give_up(partition)
        if delete and not self._is_of_another_topic(tp):
            try:
                self.logs.delete(tp)
            except StorageError as error:
                self.directory_failed(error)
                return error.code
        return ErrorCode.NONE

    def _is_of_another_topic(self, tp: TopicPartition) -> bool:
        """True if what is on disk has the name of a topic that is deleted, but is not its replica: perhaps it is the
        only copy of that other topic's records."""
        topic_id = self.logs.topic_id(tp)
        if not is_another_topic(topic_id, self.metadata.last_id_of(tp.topic)):
            return False
        log.error(
            "%s is not deleted: it is of another topic of that name, with id %s; move it away before the next topic of "
            "that name is made",
            self.logs.path_of(tp),
            id_text(topic_id),
        )
        return True

    def _give_up(self, partition: Partition) -> None:
        """Its log stays."""
        tp = partition.tp
        partition.retire()
        self._full_disks.forget(tp)
        self.lost_tails.forget(tp)
        self.on_roles_changed([partition])
        self._tell_role_watcher(partition)
        self._topic_changed(tp.topic)
        del self._partitions[tp.topic][tp.partition]
        if not self._partitions[tp.topic]:
            del self._partitions[tp.topic]
            self.probes.forget(tp.topic)

    def _topic_changed(self, topic: str) -> None:
        for told in self.on_topic_changed:
            told(topic)

    def _tell_role_watcher(self, partition: Partition) -> None:
        watcher = self.role_watchers.get(partition.tp.topic)
        if watcher is not None:
            watcher(partition)

    # -- what happens to the disks and the settings ----------------------------------------------------------------

    def _work_in_pieces(self, work: Pieces[None]) -> None:
        """The first piece at once, for most work of a log is no more."""
        for _ in work:
            self.waits.soon(partial(self._go_on_with, work))
            return

    def _go_on_with(self, work: Pieces[None]) -> None:
        try:
            self._work_in_pieces(work)
        except StorageError as error:
            self.directory_failed(error)

    def directory_failed(self, error: StorageError) -> None:
        """A disk said no: its partitions answer KAFKA_STORAGE_ERROR from now on, the others go on.

        What may pass is waited for: somebody has to make room. Meanwhile other replicas go on, see `full_disks`.
        """
        if may_pass(error):
            now_ms, remedy = self.logs.clock.monotonic_ms(), _remedy(error)
            if now_ms >= self._silent_until.get((error.directory, remedy), now_ms):
                self._silent_until[error.directory, remedy] = now_ms + _REMINDER_MS
                log.error("%s; %s", error, remedy)
            if lacks_room(error):
                self._full_disks.refused(error.directory, now_ms)
                if self._full_disks.is_to_look(error.directory, now_ms):
                    self._leave_isrs(error.directory, deque(self), 0)
            return
        try:
            self.logs.fail(error)
        except NoLogDirectoryError as last:
            self._halt(str(last))

    def _leave_isrs(self, directory: str, waiting: deque[Partition], left: int) -> None:
        """Those of `waiting` that are in this log directory: some now and the others later, for there may be tens of
        thousands. The controller asks when all have left; `left` are those that have already."""
        some = [waiting.popleft() for _ in range(min(_LOOKED_AT_A_TURN, len(waiting)))]
        left += sum(self._leaves_isr(directory, partition) for partition in some)
        if waiting:
            self.waits.soon(partial(self._leave_isrs, directory, waiting, left))
        elif left:
            log.error("%s: %d partitions there leave their ISRs until there is room", directory, left)
            self.ask_for_leader_and_isr()

    def _leaves_isr(self, directory: str, partition: Partition) -> bool:
        """False if it has nothing to leave. An error of ours keeps neither the others from leaving nor the controller
        from being told: what has left is passed over when the disk refuses an append again."""
        try:
            if not self._full_disks.leave(directory, partition):
                return False
            self.on_roles_changed([partition])
            self._tell_role_watcher(partition)
            self._topic_changed(partition.tp.topic)
        except Exception:
            log.exception("internal error while %s leaves its ISR", partition.tp)
        return True

    def _directory_lost(self, directory: LogDirectory, lost: list[TopicPartition]) -> None:
        error = StorageError(directory.path, f"{directory.path} is offline: {directory.failure}")
        log.error("%s; its %d partitions are offline until the broker restarts", error, len(lost))
        here = [partition for tp in lost if (partition := self.find(*tp)) is not None]
        for partition in here:
            self._full_disks.forget(partition.tp)
            partition.fail(error)
            self._tell_role_watcher(partition)
            self._topic_changed(partition.tp.topic)
        self.on_roles_changed(here)
        self.ask_for_leader_and_isr()

    def topic_config_changed(self, topic: str) -> None:
        refused = [tp for tp in self.lost_tails.refused if tp.topic == topic]
        self._configs_changed(self.of_topic(topic).values(), refused)

    def all_configs_changed(self) -> None:
        self._configs_changed(self, self.lost_tails.refused)

    def _configs_changed(self, partitions: Iterable[Partition], refused: Iterable[TopicPartition]) -> None:
        """Those that refused to lead come first: the controller is asked again for those that may lead now."""
        may_lead = False
        for tp in refused:
            partition = self.find(*tp)
            if partition is not None:
                self._take_config(partition)
            may_lead = may_lead or self._topic_config(tp.topic).unclean_leader_election
        if may_lead:
            self.ask_for_leader_and_isr()
        self.do_some_at_a_time(partitions, self._take_config)

    def _take_config(self, partition: Partition) -> None:
        config = self._topic_config(partition.tp.topic)
        if partition.log.config != config:
            partition.update_config(config)
        future = self.logs.future(partition.tp)
        if future is not None:
            future.update_config(config)

    def do_some_at_a_time(self, partitions: Iterable[Partition], do: Callable[[Partition], None]) -> None:
        """Some now and the others in later turns of the loop, for there may be tens of thousands. One that is given up
        meanwhile still gets its turn."""
        waiting = list(partitions)
        some, others = waiting[:_LOOKED_AT_A_TURN], waiting[_LOOKED_AT_A_TURN:]
        if others:
            self.waits.soon(partial(self.do_some_at_a_time, others, do))
        for partition in some:
            do(partition)


def _remedy(error: StorageError) -> str:
    """Of one that may pass."""
    if lacks_room(error):
        return "writes that need more space there are refused until there is room"
    if lacks_open_files(error):
        return (
            "what needs another open file is refused meanwhile: raise the limit of open files (`ulimit -n`, "
            "LimitNOFILE in the unit), or that of the whole system (fs.file-max)"
        )
    return "it is tried again"


def _refuse_name(tp: TopicPartition) -> ErrorCode | None:
    """A replica's directory has the name of its partition, and nobody may choose one outside of log.dirs."""
    if tp.partition >= 0 and name_problem(tp.topic) is None:
        return None
    log.error("there can be no partition %d of topic %r, which somebody gives to this broker", tp.partition, tp.topic)
    return ErrorCode.INVALID_TOPIC_EXCEPTION


def _is_news(state: LeaderAndIsrPartitionState, known: Partition) -> bool:
    """A role in the epoch that is known is for a replica that has given it up (`full_disks`)."""
    if state.leader_epoch == known.leader_epoch:
        return known.role.leader < 0 <= state.leader
    return state.leader_epoch > known.leader_epoch
