"""TxnOffsetCommit, 0 to 5: offsets of a group that count once a transaction commits.

Up to version 4 the producer has added the group to its transaction (AddOffsetsToTxn), and its coordinator is asked
whether that is so; from 5 on the same question adds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Mapping, Sequence, Set
from itertools import chain
from typing import Any

from kafkad.api.answering import LARGE_FRAME
from kafkad.api.context import Context, Request
from kafkad.api.verifier import Claim, Verdict
from kafkad.cluster.metadata import TopicMetadata
from kafkad.errors import ErrorCode, KafkaError
from kafkad.group.committing import Codes, Committer, OffsetToCommit
from kafkad.log.producers import ProducerStates, Verification
from kafkad.model import NO_EPOCH
from kafkad.replica.partition import Partition
from kafkad.security.authorizer import REFUSALS, Operation, ResourceType
from kafkad.shard import TransactionalProducer
from kafkad.turns import Pieces, at_once
from kafkad.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_AT_ONCE = 100
_OFFSETS_A_BATCH = 500
_FIRST_ADDING = 5
_FIRST_ABORTABLE = 4
_FIRST_LOADING = 2
"""Older clients do not know COORDINATOR_LOAD_IN_PROGRESS here."""

Answers = list[TxnOffsetCommitResponsePartition]


Response = TxnOffsetCommitResponse | Coroutine[None, None, Any]


def handle(context: Context, request: Request, message: TxnOffsetCommitRequest) -> Response | Pieces[Response]:
    """Without a coroutine when nothing has to be waited for."""
    if not message.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "offsets of no group")
    committed = _commit(context, request, message, request.rights)
    return committed if len(request.frame) > LARGE_FRAME else at_once(committed)


def _commit(context: Context, request: Request, message: TxnOffsetCommitRequest, rights: object) -> Pieces[Response]:
    found: dict[str, TopicMetadata] = {}
    response, asked, answers = yield from _sorted_out(context, request, message, found)
    if not asked:
        return response
    commit = _Commit(context, request, message, rights, found, asked, response, answers)
    code = commit.verified()
    if isinstance(code, ErrorCode):
        return (yield from commit.write(code))
    return commit.when_verified(code)


def refused(request: Request, message: TxnOffsetCommitRequest, error: KafkaError) -> TxnOffsetCommitResponse:
    """There is no place for it but at each partition."""
    topics = [
        TxnOffsetCommitResponseTopic(
            name=topic.name,
            partitions=[
                TxnOffsetCommitResponsePartition(partition_index=one.partition_index, error_code=error.code)
                for one in topic.partitions
            ],
        )
        for topic in message.topics
    ]
    return TxnOffsetCommitResponse(topics=topics)


class _Commit:
    """One request under way: who commits is verified first, then the group is asked."""

    def __init__(
        self,
        context: Context,
        request: Request,
        message: TxnOffsetCommitRequest,
        rights: object,
        topics: Mapping[str, TopicMetadata],
        asked: list[OffsetToCommit],
        response: TxnOffsetCommitResponse,
        answers: Answers,
    ) -> None:
        """By `rights` all of this was allowed, for these topics."""
        self._context = context
        self._request = request
        self._version = request.version
        self._message = message
        self._rights = rights
        self._topics = topics
        self._asked = asked
        self._response = response
        self._answers = answers
        self._asked_with: Verification | None = None
        self._producers: ProducerStates | None = None
        """Those that remember the question."""
        self._leader_epoch = NO_EPOCH
        self._producer = TransactionalProducer(message.producer_id, message.producer_epoch)

    def verified(self) -> ErrorCode | asyncio.Future[ErrorCode]:
        """Whether the offsets belong to an open transaction of this producer; later, if somebody has to be asked."""
        try:
            home = self._context.offsets.home(self._message.group_id)
            producers = self._producers = home.log.producers
            producers.check_epoch(*self._producer)
        except KafkaError as error:
            return error.code
        self._leader_epoch = home.leader_epoch
        if producers.is_open(*self._producer):
            return ErrorCode.NONE
        asked = self._asked_with = producers.verify(*self._producer, 0, self._context.clock.now_ms())
        if not self._adds and not self._context.config.bool("transaction.partition.verification.enable"):
            return ErrorCode.NONE
        answered: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def told(verdict: Verdict) -> None:
            code = verdict[home.tp]
            if code:
                producers.forget_verification(self._producer.id, asked)
            answered.set_result(_NOT_NOW if code is ErrorCode.NOT_ENOUGH_REPLICAS else code)

        self._context.verifier.ask(self._claim(home), told)
        return answered.result() if answered.done() else answered

    @property
    def _adds(self) -> bool:
        return self._version >= _FIRST_ADDING

    def _claim(self, home: Partition) -> Claim:
        return Claim(
            self._message.transactional_id,
            *self._producer,
            [home.tp],
            adds=self._adds,
            knows_abortable=self._version >= _FIRST_ABORTABLE,
            client=self._request.client_text,
        )

    async def when_verified(self, code: asyncio.Future[ErrorCode]) -> Pieces[Response]:
        """The rest of the work, when it is known. Rights may have been taken away meanwhile."""
        return self.write(await code)

    def _asked_again(self, at: int, code: ErrorCode) -> ErrorCode:
        """The code of what comes from `at` on, if rights have changed since they were asked for last."""
        rights = self._request.rights
        if rights == self._rights:
            return code
        self._rights = rights
        self._leave_out_hidden(at)
        return code or self._refusal()

    def _leave_out_hidden(self, at: int) -> None:
        """Nothing more is committed for topics that may not be read any more."""
        topics = dict.fromkeys(offset.topic for offset in self._asked[at:])
        allowed = self._request.allowed
        hidden = {name for name in topics if not allowed(Operation.READ, ResourceType.TOPIC, name)}
        self._leave_out(at, hidden, ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def _leave_out_gone(self, at: int) -> None:
        """What was committed to a topic that is deleted goes at once: it must not come back."""
        known = self._context.replicas.metadata.topics
        gone = {name for name, topic in self._topics.items() if known.get(name) is not topic}
        self._leave_out(at, gone, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _leave_out(self, at: int, topics: Set[str], code: ErrorCode) -> None:
        """Of what comes from `at` on."""
        if not topics:
            return
        rest = list(zip(self._asked[at:], self._answers[at:], strict=True))
        for offset, answer in rest:
            if offset.topic in topics:
                answer.error_code = code
        kept = [pair for pair in rest if pair[0].topic not in topics]
        self._asked[at:] = [offset for offset, _ in kept]
        self._answers[at:] = [answer for _, answer in kept]

    def write(self, code: ErrorCode) -> Pieces[Response]:
        """A few hundred offsets in each batch, as long as the transaction that they belong to goes on."""
        codes: list[Codes | Awaitable[Codes]] = []
        at = 0
        code = self._asked_again(at, code)
        self._leave_out_gone(at)
        while some := self._asked[at : at + _OFFSETS_A_BATCH]:
            at += len(some)
            code = code or self._goes_on()
            codes.append([code] * len(some) if code else self._write(some))
            yield
            code = self._asked_again(at, code)
            self._leave_out_gone(at)
        if all(isinstance(each, list) for each in codes):
            return self._answered(codes)
        return self._when_committed(codes)

    def _refusal(self) -> ErrorCode:
        """Of who may not write in the transaction, or commit for the group, now."""
        request, message = self._request, self._message
        for operation, resource, name in (
            (Operation.WRITE, ResourceType.TRANSACTIONAL_ID, message.transactional_id),
            (Operation.READ, ResourceType.GROUP, message.group_id),
        ):
            if not request.allowed(operation, resource, name):
                return REFUSALS[resource][0]
        return ErrorCode.NONE

    def _goes_on(self) -> ErrorCode:
        """The transaction is open, or what its coordinator said of it still holds."""
        try:
            home = self._context.offsets.home(self._message.group_id)
        except KafkaError as error:
            return error.code
        if home.leader_epoch != self._leader_epoch:
            return ErrorCode.NOT_COORDINATOR  # it was one elsewhere meanwhile
        asked, producers = self._asked_with, home.log.producers
        if producers.is_open(*self._producer):
            return ErrorCode.NONE
        if producers is not self._producers:
            return ErrorCode.NOT_COORDINATOR  # its log has moved meanwhile
        if asked is not None and producers.is_verified(self._producer.id, asked):
            return ErrorCode.NONE
        return ErrorCode.INVALID_TXN_STATE  # it has ended meanwhile

    def _write(self, offsets: Sequence[OffsetToCommit]) -> Codes | Awaitable[Codes]:
        message = self._message
        who = Committer(message.group_id, message.member_id, message.group_instance_id, message.generation_id)
        return self._context.offsets.commit_in_transaction(who, self._producer, offsets)

    async def _when_committed(self, codes: Sequence[Codes | Awaitable[Codes]]) -> TxnOffsetCommitResponse:
        return self._answered([each if isinstance(each, list) else await each for each in codes])

    def _answered(self, codes: Sequence[Any]) -> TxnOffsetCommitResponse:
        for answer, code in zip(self._answers, chain.from_iterable(codes), strict=True):
            loading = code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and self._version < _FIRST_LOADING
            answer.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE if loading else code
        return self._response


_NOT_NOW = ErrorCode.COORDINATOR_NOT_AVAILABLE


def _sorted_out(
    context: Context, request: Request, message: TxnOffsetCommitRequest, found: dict[str, TopicMetadata]
) -> Pieces[tuple[TxnOffsetCommitResponse, list[OffsetToCommit], Answers]]:
    """The offsets to commit, with their places in the response, and their topics in `found`; unknown ones already have
    their answer."""
    topics = context.replicas.metadata.topics
    response, asked, answers = TxnOffsetCommitResponse(), [], []
    for topic in message.topics:
        known = topics.get(topic.name)
        hidden = not request.allowed(Operation.READ, ResourceType.TOPIC, topic.name)
        partitions = []
        for number, one in enumerate(topic.partitions, 1):
            if not number % _AT_ONCE:
                yield
            answer = TxnOffsetCommitResponsePartition(partition_index=one.partition_index)
            partitions.append(answer)
            if hidden:
                answer.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                continue
            if known is None or one.partition_index not in known.partitions:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            found[known.name] = known
            answers.append(answer)
            asked.append(
                OffsetToCommit(
                    known.name,
                    one.partition_index,
                    one.committed_offset,
                    one.committed_leader_epoch,
                    one.committed_metadata,
                )
            )
        response.topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions))
        yield
    return response, asked, answers
