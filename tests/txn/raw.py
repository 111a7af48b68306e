"""Requests of transactional producers, raw: in the version and with the ids that a test says."""

from __future__ import annotations

import time
from itertools import count
from typing import Any

from kafkad.errors import ErrorCode
from kafkad.wire.records import Record, build_batch, iter_batches, iter_records
from tests.clients.asker import KEYS, Asker

A, B, COMPACTED = "h-a", "h-b", "h-compact"
Tp = tuple[str, int]
_NOT_NOW = {ErrorCode.CONCURRENT_TRANSACTIONS, 14, 15, 16}
_NO_OFFSETS_YET = {
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}
_PATIENCE_S = 10
_numbers = count(1)


def name(code: int) -> str:
    return ErrorCode(code).name


def _by_topic(partitions: Any) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for topic, one in partitions:
        found.setdefault(topic, []).append(one)
    return found


class Raw:
    """One connection. Those with `wait` ask again while they are told to, as clients do."""

    def __init__(self, port: int, *, timeout: float = 40) -> None:
        self._port = port
        self._timeout = timeout
        self.ids: dict[str, bytes] = {}
        self.connect()

    def connect(self) -> None:
        self._asker = Asker(self._port, timeout=self._timeout)
        self.served = self._asker.served

    def close(self) -> None:
        self._asker.client.close()

    def ask(self, api: str, version: int, fields: dict[str, Any]) -> Any:
        return self._asker.ask(api, version, fields)

    def serves(self, api: str, version: int) -> bool:
        first, last = self.served.get(KEYS[api], (0, -1))
        return first <= version <= last

    # -- names of its own, for one question each

    def new_id(self) -> str:
        return f"id-{next(_numbers)}"

    def topic(self) -> Tp:
        name = f"hp-{next(_numbers)}"
        self.create(name, 1)
        return name, 0

    def group(self) -> str:
        name = f"group-{next(_numbers)}"
        self.coordinator([name], 0)
        return name

    def started(self) -> tuple[str, int, int, Tp]:
        """A transaction with one batch."""
        txn, tp = self.new_id(), self.topic()
        pid, epoch = self.new(txn)
        self.add(txn, pid, epoch, [tp])
        self.produce_one(txn, pid, epoch, 0, tp)
        return txn, pid, epoch, tp

    # -- requests

    def create(self, topic: str, partitions: int = 3, **config: str) -> None:
        configs = [{"name": key.replace("_", "."), "value": value} for key, value in config.items()]
        asked = {"name": topic, "num_partitions": partitions, "replication_factor": 1, "assignments": []}
        answer = self.ask("CreateTopics", 5, {"topics": [{**asked, "configs": configs}], "timeout_ms": 30_000})
        assert not answer.topics[0].error_code
        self.know(topic)

    def know(self, *topics: str) -> None:
        """Their ids."""
        end = time.monotonic() + _PATIENCE_S
        while True:
            answer = self.ask("Metadata", 12, {"topics": [{"name": topic} for topic in topics]})
            if not any(found.error_code or not found.partitions for found in answer.topics):
                break
            assert time.monotonic() < end, answer
            time.sleep(0.02)
        for found in answer.topics:
            self.ids[found.name] = bytes(found.topic_id)

    def coordinator(self, keys: list[str], kind: int = 1, v: int = 4) -> Any:
        end = time.monotonic() + _PATIENCE_S
        while True:
            answer = self.ask("FindCoordinator", v, {"key_type": kind, "coordinator_keys": keys})
            if not any(one.error_code for one in answer.coordinators) or time.monotonic() > end:
                return answer
            time.sleep(0.02)

    def until_loaded(self, tids: list[str]) -> None:
        """Until this broker knows of each id what it is asked for."""
        end = time.monotonic() + _PATIENCE_S
        for tid in tids:
            while self.describe(tid).error_code in _NOT_NOW:
                assert time.monotonic() < end, f"{tid} is not loaded"
                time.sleep(0.02)

    def init(
        self,
        tid: str | None,
        timeout: int = 60_000,
        pid: int = -1,
        epoch: int = -1,
        version: int = 4,
        wait: bool = True,
    ) -> Any:
        asked = {
            "transactional_id": tid,
            "transaction_timeout_ms": timeout,
            "producer_id": pid,
            "producer_epoch": epoch,
        }
        end = time.monotonic() + _PATIENCE_S
        while True:
            answer = self.ask("InitProducerId", version, asked)
            if not wait or answer.error_code not in _NOT_NOW or time.monotonic() > end:
                return answer
            time.sleep(0.02)

    def new(self, tid: str | None, **more: Any) -> tuple[int, int]:
        answer = self.init(tid, **more)
        assert not answer.error_code, name(answer.error_code)
        return answer.producer_id, answer.producer_epoch

    def add(
        self, tid: str, pid: int, epoch: int, parts: list[Tp], version: int = 3, wait: bool = True
    ) -> dict[str, int]:
        topics = [{"name": topic, "partitions": indexes} for topic, indexes in _by_topic(parts).items()]
        producer = {"v3_and_below_producer_id": pid, "v3_and_below_producer_epoch": epoch}
        asked = {"v3_and_below_transactional_id": tid, **producer, "v3_and_below_topics": topics}
        end = time.monotonic() + _PATIENCE_S
        while True:
            answer = self.ask("AddPartitionsToTxn", version, asked)
            codes = {
                f"{topic.name}-{one.partition_index}": one.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for one in topic.results_by_partition
            }
            if not wait or not set(codes.values()) & _NOT_NOW or time.monotonic() > end:
                return codes
            time.sleep(0.02)

    def add_batched(
        self, transactions: list[tuple[str, int, int, bool, list[Tp]]], version: int = 4
    ) -> tuple[int, dict[str, dict[str, int]]]:
        asked = [
            {
                "transactional_id": tid,
                "producer_id": pid,
                "producer_epoch": epoch,
                "verify_only": verify,
                "topics": [{"name": topic, "partitions": indexes} for topic, indexes in _by_topic(parts).items()],
            }
            for tid, pid, epoch, verify, parts in transactions
        ]
        answer = self.ask("AddPartitionsToTxn", version, {"transactions": asked})
        return answer.error_code, {
            found.transactional_id: {
                f"{topic.name}-{one.partition_index}": one.partition_error_code
                for topic in found.topic_results
                for one in topic.results_by_partition
            }
            for found in answer.results_by_transaction
        }

    def batch(
        self, pid: int, epoch: int, sequence: int, size: int = 1, txn: bool = True, control: bool = False
    ) -> bytes:
        stamp = int(time.time() * 1000)
        records = [Record(i, stamp, b"k%d" % i, b"v%d" % i) for i in range(size)]
        options = {"producer_id": pid, "producer_epoch": epoch, "base_sequence": sequence}
        return bytes(build_batch(records, **options, transactional=txn, control=control))

    def produce(
        self, tid: str | None, parts: dict[Tp, bytes], version: int = 9, acks: int = -1
    ) -> dict[str, tuple[int, int]]:
        """Error and base offset."""
        by_topic = _by_topic((topic, {"index": index, "records": data}) for (topic, index), data in parts.items())
        data = [
            {"name": topic, "topic_id": self.ids.get(topic, bytes(16)), "partition_data": partitions}
            for topic, partitions in by_topic.items()
        ]
        asked = {"transactional_id": tid, "acks": acks, "timeout_ms": 10_000, "topic_data": data}
        answer = self.ask("Produce", version, asked)
        return {
            f"{topic.name or '?'}-{one.index}": (one.error_code, one.base_offset)
            for topic in answer.responses
            for one in topic.partition_responses
        }

    def produce_one(
        self, tid: str | None, pid: int, epoch: int, sequence: int, tp: Tp, version: int = 9, **more: bool
    ) -> tuple[int, int]:
        batch = self.batch(pid, epoch, sequence, **more)  # type: ignore[arg-type]
        [answer] = self.produce(tid, {tp: batch}, version).values()
        return answer

    def end(self, tid: str, pid: int, epoch: int, commit: bool = True, version: int = 3, wait: bool = False) -> Any:
        asked = {"transactional_id": tid, "producer_id": pid, "producer_epoch": epoch, "committed": commit}
        end = time.monotonic() + _PATIENCE_S
        while True:
            answer = self.ask("EndTxn", version, asked)
            if not wait or answer.error_code not in _NOT_NOW or time.monotonic() > end:
                return answer
            time.sleep(0.02)

    def settled(self, tid: str) -> Any:
        end = time.monotonic() + _PATIENCE_S
        while True:
            found = self.describe(tid)
            if not found.transaction_state.startswith("Prepare") or time.monotonic() > end:
                return found
            time.sleep(0.005)

    def describe(self, tid: str) -> Any:
        return self.ask("DescribeTransactions", 0, {"transactional_ids": [tid]}).transaction_states[0]

    def add_offsets(self, tid: str, pid: int, epoch: int, group: str, version: int = 3) -> int:
        asked = {"transactional_id": tid, "producer_id": pid, "producer_epoch": epoch, "group_id": group}
        code: int = self.ask("AddOffsetsToTxn", version, asked).error_code
        return code

    def commit_offsets(
        self,
        tid: str,
        pid: int,
        epoch: int,
        group: str,
        offsets: dict[Tp, int],
        version: int = 3,
        gen: int = -1,
        member: str = "",
        instance: str | None = None,
        metadata: str = "",
    ) -> dict[str, int]:
        more = {"committed_leader_epoch": -1, "committed_metadata": metadata}
        by_topic = _by_topic(
            (topic, {"partition_index": index, "committed_offset": offset, **more})
            for (topic, index), offset in offsets.items()
        )
        asked = {
            "transactional_id": tid,
            "group_id": group,
            "producer_id": pid,
            "producer_epoch": epoch,
            "generation_id": gen,
            "member_id": member,
            "group_instance_id": instance,
            "topics": [{"name": topic, "partitions": partitions} for topic, partitions in by_topic.items()],
        }
        answer = self.ask("TxnOffsetCommit", version, asked)
        return {
            f"{topic.name}-{one.partition_index}": one.error_code for topic in answer.topics for one in topic.partitions
        }

    def markers(self, markers: list[tuple[Any, ...]], version: int = 1) -> list[tuple[int, dict[str, int]]]:
        """Of each: producer id, epoch, commit, partitions, coordinator epoch, and perhaps the transaction version."""
        asked = [
            {
                "producer_id": pid,
                "producer_epoch": epoch,
                "transaction_result": commit,
                "coordinator_epoch": coordinator_epoch,
                "transaction_version": more[0] if more else 0,
                "topics": [
                    {"name": topic, "partition_indexes": indexes} for topic, indexes in _by_topic(partitions).items()
                ],
            }
            for pid, epoch, commit, partitions, coordinator_epoch, *more in markers
        ]
        answer = self.ask("WriteTxnMarkers", version, {"markers": asked})
        return [
            (
                one.producer_id,
                {f"{topic.name}-{p.partition_index}": p.error_code for topic in one.topics for p in topic.partitions},
            )
            for one in answer.markers
        ]

    # -- what is left behind

    def offsets(self, tp: Tp, isolation: int = 1, timestamp: int = -1, version: int = 6) -> tuple[int, int, int]:
        partition = {"partition_index": tp[1], "timestamp": timestamp, "current_leader_epoch": -1}
        asked = {"replica_id": -1, "isolation_level": isolation, "timeout_ms": 1000}
        topics = [{"name": tp[0], "partitions": [partition]}]
        found = self.ask("ListOffsets", version, {**asked, "topics": topics}).topics[0].partitions[0]
        return found.error_code, found.offset, found.timestamp

    def fetch(self, tp: Tp, offset: int = 0, isolation: int = 1, version: int = 11) -> Any:
        partition = {"partition": tp[1], "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        session = {"session_id": 0, "session_epoch": -1, "forgotten_topics_data": [], "rack_id": ""}
        limits = {"replica_id": -1, "max_wait_ms": 10, "min_bytes": 1, "max_bytes": 1 << 20}
        topics = [{"topic": tp[0], "partitions": [partition]}]
        asked = {**limits, "isolation_level": isolation, **session, "topics": topics}
        return self.ask("Fetch", version, asked).responses[0].partitions[0]

    def committed(self, tp: Tp) -> list[bytes]:
        """What a reader of committed records finds, up to the last stable offset."""
        found: list[bytes] = []
        offset, end = 0, self.offsets(tp)[1]
        while offset < end:
            answer = self.fetch(tp, offset)
            assert not answer.error_code
            aborted = {(one.producer_id, one.first_offset) for one in answer.aborted_transactions}
            dropped: set[int] = set()
            data = memoryview(answer.records)
            next_offset = offset + 1
            for at, header in iter_batches(data):
                pid, base = header.producer_id, header.base_offset
                dropped |= {one for one, first in aborted if one == pid and first <= base}
                if header.is_control:
                    dropped.discard(pid)
                    aborted = {(one, first) for one, first in aborted if one != pid or first > base}
                elif pid not in dropped and base >= offset:
                    found += [record.value or b"" for record in iter_records(data, at, header)]
                next_offset = max(base + header.last_offset_delta + 1, next_offset)
            offset = next_offset
        return found

    def committed_offset(self, group: str, tp: Tp, *, stable: bool = True) -> int:
        """That of the group, or -1; if it is to be `stable`, when no transaction is to change it any more."""
        topics = [{"name": tp[0], "partition_indexes": [tp[1]]}]
        asked = {"group_id": group, "topics": topics, "require_stable": stable}
        end = time.monotonic() + _PATIENCE_S
        while True:
            answer = self.ask("OffsetFetch", 7, asked)
            found = answer if answer.error_code else answer.topics[0].partitions[0]
            if not found.error_code:
                return int(found.committed_offset)
            assert found.error_code in _NO_OFFSETS_YET, found
            assert time.monotonic() < end, f"the offsets are not known: {ErrorCode(found.error_code).name}"
            time.sleep(0.01)

    def producers(self, tp: Tp) -> Any:
        topics = [{"name": tp[0], "partition_indexes": [tp[1]]}]
        return self.ask("DescribeProducers", 0, {"topics": topics}).topics[0].partitions[0]
