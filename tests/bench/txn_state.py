"""The state of many transactional ids in figures, kafkad beside real Kafka 3.9: memory, time-outs, loading.

    python -m tests.bench.txn_state [--only TEXT] [--quick] [--without kafka|kafkad]

Exits 1 when a promise is not kept. Run nothing else meanwhile.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from kafkad.errors import ErrorCode
from kafkad.names import TRANSACTIONS_TOPIC, home_partition
from kafkad.wire.log_records.transaction_state import PartitionsSchema, TransactionLogKey, TransactionLogValue
from kafkad.wire.messages.describe_transactions import DescribeTransactionsRequest
from kafkad.wire.messages.init_producer_id import InitProducerIdRequest
from kafkad.wire.messages.list_transactions import ListTransactionsRequest
from kafkad.wire.records import Record, build_batch
from kafkad.wire.schema import encode
from tests.bench.compared import Measurement, Promise, Side, Values, main
from tests.bench.measured import memory_mb
from tests.bench.txn_load import Raw, adding, answer, codes_of_adding, create_topic, frame

OPEN_IDS = 10_000
AT_ONCE = 100
"""Requests on their way over the one connection."""
TIMEOUT_MS = 60_000
STATE_PARTITIONS = 50
LOADED_PARTITION = 7
LOADED_RECORDS = 100_000
LOADED_IDS = 1000
ONGOING, PREPARED, COMPLETE = 1, 2, 4
SETTINGS = {
    "transaction.state.log.num.partitions": str(STATE_PARTITIONS),
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
_INIT, _DESCRIBE, _LIST = (22, 1), (65, 0), (66, 0)
_PASSING = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}


# -- many that are open


def open_ids(side: Side) -> Values:
    """All of one topic, without records; each is to be aborted at its own time-out."""
    count = round(OPEN_IDS * side.bench.size)
    names = [f"open-{number}" for number in range(count)]
    create_topic(f"127.0.0.1:{side.port}", "t", 1)
    raw = Raw(side.port)
    raw.begin_working(["first"])
    before = memory_mb(side.pid)
    deadlines = dict(_opened(raw, names))
    yield "10,000 open transactions: memory", memory_mb(side.pid) - before
    yield "… the latest abort after its time-out", _latest(raw, deadlines)
    raw.close()


def _opened(raw: Raw, names: Sequence[str]) -> Iterator[tuple[str, float]]:
    """When each of them is to be over at the earliest."""
    for at in range(0, len(names), AT_ONCE):
        part = names[at : at + AT_ONCE]
        producers = _initialized(raw, part)
        for name in part:
            raw.client.send(adding(name, producers[name], "t", 1))
        for name in part:
            codes = codes_of_adding(raw.client.receive_frame())
            if codes != {0}:
                raise RuntimeError(f"AddPartitionsToTxn of {name}: {codes}")
            yield name, time.monotonic() + TIMEOUT_MS / 1000


def _initialized(raw: Raw, names: Sequence[str]) -> dict[str, tuple[int, int]]:
    producers: dict[str, tuple[int, int]] = {}
    while missing := [name for name in names if name not in producers]:
        for name in missing:
            request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=TIMEOUT_MS)
            raw.client.send(frame(_INIT, request))
        for name in missing:
            said = answer(_INIT, raw.client.receive_frame())
            if not said.error_code:
                producers[name] = (said.producer_id, said.producer_epoch)
            elif said.error_code not in _PASSING:
                raise RuntimeError(f"InitProducerId of {name}: {ErrorCode(said.error_code).name}")
    return producers


def _latest(raw: Raw, deadlines: dict[str, float]) -> float:
    """How long after its time-out the latest of them was still open."""
    time.sleep(max(min(deadlines.values()) - time.monotonic(), 0))
    latest, left = 0.0, dict(deadlines)
    while left:
        time.sleep(0.1)
        now = time.monotonic()
        said = raw.ask(_LIST, ListTransactionsRequest(state_filters=["Ongoing"], producer_id_filters=[]))
        still = {state.transactional_id for state in said.transaction_states}
        late = [now - left[name] for name in still & left.keys()]
        latest = max([latest, *late])
        left = {name: left[name] for name in still & left.keys()}
    return latest


# -- loading


def loading(side: Side) -> Values:
    """A crash, a log of 100,000 records of transactions, and the time until the first id is known."""
    records = round(LOADED_RECORDS * side.bench.size)
    names = list(itertools.islice(_names_of_the_partition(), LOADED_IDS))
    path = side.bench.directory / f"transactions-{records}"
    if not path.exists():
        write_records(path, names, records)
    raw = Raw(side.port)
    raw.begin_working(names[:1])
    raw.close()
    while not _log(side).exists():
        time.sleep(0.05)
    side.crash(functools.partial(_put_in_place, side, path))
    begin = time.perf_counter()
    _wait_until_loaded(side.port, names[-1])
    yield "loading 100,000 records of transactions", time.perf_counter() - begin


def _names_of_the_partition() -> Iterator[str]:
    for number in itertools.count():
        if home_partition(f"load-{number}", STATE_PARTITIONS) == LOADED_PARTITION:
            yield f"load-{number}"


def write_records(path: Path, names: Sequence[str], records: int) -> None:
    """Whole transactions, one record a batch as coordinators write them; all have ended."""
    now_ms = int(time.time() * 1000)
    with path.open("wb") as out:
        for number in range(records):
            turn, place = divmod(number, len(names))
            state = COMPLETE if number >= records - len(names) else (ONGOING, PREPARED, COMPLETE)[turn % 3]
            partitions = [] if state == COMPLETE else [PartitionsSchema(topic="t", partition_ids=[0])]
            key = b"\0\0" + encode(TransactionLogKey(transactional_id=names[place]), 0)
            value = TransactionLogValue(
                producer_id=place,
                producer_epoch=0,
                transaction_timeout_ms=TIMEOUT_MS,
                transaction_status=state,
                transaction_partitions=partitions,
                transaction_last_update_timestamp_ms=now_ms,
                transaction_start_timestamp_ms=now_ms,
            )
            record = Record(number, now_ms, key, b"\0\0" + encode(value, 0))
            out.write(build_batch([record], leader_epoch=0))


def _log(side: Side) -> Path:
    return side.log_directory() / f"{TRANSACTIONS_TOPIC}-{LOADED_PARTITION}" / f"{0:020}.log"


def _put_in_place(side: Side, path: Path) -> None:
    log = _log(side)
    for index in (".index", ".timeindex"):
        log.with_suffix(index).unlink(missing_ok=True)
    log.write_bytes(path.read_bytes())


def _wait_until_loaded(port: int, name: str) -> None:
    raw = Raw(port)
    while True:
        (state,) = raw.ask(_DESCRIBE, DescribeTransactionsRequest(transactional_ids=[name])).transaction_states
        if state.error_code not in _PASSING:
            break
        time.sleep(0.01)
    raw.close()
    assert (state.error_code, state.transaction_state) == (0, "CompleteCommit"), state


MEASUREMENTS = (
    Measurement(
        open_ids,
        (
            Promise(name="10,000 open transactions: memory", unit="MB", limit=15),
            Promise(name="… the latest abort after its time-out", unit="s", limit=1),
        ),
        SETTINGS,
    ),
    Measurement(loading, (Promise(name="loading 100,000 records of transactions", unit="s", limit=1),), SETTINGS),
)

if __name__ == "__main__":
    main(__doc__, MEASUREMENTS)
