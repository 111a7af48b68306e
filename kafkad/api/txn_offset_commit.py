"""TxnOffsetCommit, 0 to 5: offsets of a group that count once a transaction commits.

Up to version 4 the producer has added the group to its transaction (AddOffsetsToTxn), and its coordinator is asked
whether that is so; from 5 on the same question adds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Sequence

from kafkad.api.context import Context, Request
from kafkad.api.verifier import Claim, Verdict
from kafkad.errors import ErrorCode, KafkaError
from kafkad.group.committing import Codes, Committer, OffsetToCommit
from kafkad.log.producers import Verification
from kafkad.replica.partition import Partition
from kafkad.shard import TransactionalProducer
from kafkad.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_FIRST_ADDING = 5
_FIRST_ABORTABLE = 4
_FIRST_LOADING = 2
"""Older clients do not know COORDINATOR_LOAD_IN_PROGRESS here."""

Answers = list[TxnOffsetCommitResponsePartition]


def handle(
    context: Context, request: Request, message: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse | Coroutine[None, None, TxnOffsetCommitResponse]:
    """Without a coroutine when nothing has to be waited for."""
    if not message.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "offsets of no group")
    response, asked, answers = _sorted_out(context, message)
    if not asked:
        return response
    commit = _Commit(context, request.version, message, asked)
    codes = commit.run()
    if isinstance(codes, list):
        return _answered(response, answers, codes, request.version)
    return _later(codes, response, answers, request.version)


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


_Asked = tuple[Verification, int]
"""What the coordinator is asked, and in which leader epoch."""


class _Commit:
    """One request under way: who commits is verified first, then the group is asked."""

    def __init__(
        self, context: Context, version: int, message: TxnOffsetCommitRequest, asked: Sequence[OffsetToCommit]
    ) -> None:
        self._context = context
        self._version = version
        self._message = message
        self._asked = asked
        self._producer = TransactionalProducer(message.producer_id, message.producer_epoch)

    def run(self) -> Codes | Awaitable[Codes]:
        try:
            home = self._context.offsets.home(self._message.group_id)
            producers = home.log.producers
            producers.check_epoch(*self._producer)
        except KafkaError as error:
            return self._refused(error.code)
        if producers.is_open(*self._producer):
            return self._commit()
        asked = producers.verify(*self._producer, 0, self._context.clock.now_ms()), home.leader_epoch
        if not self._adds and not self._context.config.bool("transaction.partition.verification.enable"):
            return self._commit()
        answered: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def told(verdict: Verdict) -> None:
            answered.set_result(verdict[home.tp])

        self._context.verifier.ask(self._claim(home), told)
        if answered.done():
            return self._verified(home, asked, answered.result())
        return self._when_verified(home, asked, answered)

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
        )

    async def _when_verified(self, home: Partition, asked: _Asked, answered: asyncio.Future[ErrorCode]) -> Codes:
        codes = self._verified(home, asked, await answered)
        return codes if isinstance(codes, list) else await codes

    def _verified(self, home: Partition, asked: _Asked, code: ErrorCode) -> Codes | Awaitable[Codes]:
        producers = home.log.producers
        verification, epoch = asked
        if code:
            producers.forget_verification(self._producer.id, verification)
            return self._refused(_NOT_NOW if code is ErrorCode.NOT_ENOUGH_REPLICAS else code)
        if home.leader_epoch != epoch:
            return self._refused(ErrorCode.NOT_COORDINATOR)  # it was one elsewhere meanwhile
        if not producers.is_verified(self._producer.id, verification) and not producers.is_open(*self._producer):
            return self._refused(ErrorCode.INVALID_TXN_STATE)  # it has ended meanwhile
        return self._commit()

    def _commit(self) -> Codes | Awaitable[Codes]:
        message = self._message
        who = Committer(message.group_id, message.member_id, message.group_instance_id, message.generation_id)
        return self._context.offsets.commit_in_transaction(who, self._producer, self._asked)

    def _refused(self, code: ErrorCode) -> Codes:
        return [code] * len(self._asked)


_NOT_NOW = ErrorCode.COORDINATOR_NOT_AVAILABLE


def _sorted_out(
    context: Context, message: TxnOffsetCommitRequest
) -> tuple[TxnOffsetCommitResponse, list[OffsetToCommit], Answers]:
    """The offsets to commit, with their places in the response; unknown topics already have their answer."""
    topics = context.replicas.metadata.topics
    response, asked, answers = TxnOffsetCommitResponse(), [], []
    for topic in message.topics:
        known = topics.get(topic.name)
        partitions = []
        for one in topic.partitions:
            answer = TxnOffsetCommitResponsePartition(partition_index=one.partition_index)
            partitions.append(answer)
            if known is None or one.partition_index not in known.partitions:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
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
    return response, asked, answers


def _answered(
    response: TxnOffsetCommitResponse, answers: Answers, codes: Codes, version: int
) -> TxnOffsetCommitResponse:
    for answer, code in zip(answers, codes, strict=True):
        loading = code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _FIRST_LOADING
        answer.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE if loading else code
    return response


async def _later(
    codes: Awaitable[Codes], response: TxnOffsetCommitResponse, answers: Answers, version: int
) -> TxnOffsetCommitResponse:
    return _answered(response, answers, await codes, version)
