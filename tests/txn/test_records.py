"""Records of transactional ids: the bytes of real Kafka, read and written again."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkad.names import TopicPartition
from kafkad.txn import records
from kafkad.txn.records import Damaged, Forgotten, LargePartitions, decode, encode, least_size
from kafkad.txn.transaction import NO_PARTITIONS, State, Transaction
from kafkad.wire import schema
from kafkad.wire.log_records.transaction_state import PartitionsSchema, TransactionLogValue
from kafkad.wire.primitives import EncodeError, MalformedError
from tests.txn import golden
from tests.work import lines

WRITTEN = [
    ("3.9", "main", 0),
    ("3.9", "compacted", 0),
    ("3.9", "expired", 0),
    ("3.9", "prepared", 0),
    ("4.3", "main", 1),
    ("4.3", "compacted", 1),
    ("4.3", "expired", 1),
    ("4.3", "prepared", 1),
]
KEY = b"\0\0\0\x01a"


@pytest.mark.parametrize(("release", "kind", "value_version"), WRITTEN)
def test_what_kafka_wrote_is_read_and_written_byte_for_byte(release: str, kind: str, value_version: int) -> None:
    count = 0
    for record in golden.records(release, kind):
        assert record.key is not None
        found = decode(record.key, record.value)
        assert isinstance(found, Transaction | Forgotten)
        key, value = encode(found, value_version)
        assert key == record.key
        if isinstance(found, Transaction) and len(found.partitions) > 1:  # Kafka's are in the order of a hash set
            assert value is not None and record.value is not None
            assert decode(key, value) == found
            assert sorted(value) == sorted(record.value)
        else:
            assert value == record.value
        count += 1
    assert count > 5


def test_the_overflow_of_a_producer_id_that_kafka_4_3_wrote() -> None:
    prepared = bytes.fromhex(
        "000100000000000000587fff0000ea6002020e726f2d31373935333737303538020000000100000001a204cfee95000001a204cfee95"
        "03000800000000000000580108000000000000005902020002"
    )
    found = decode(KEY, prepared)
    assert found == Transaction(
        "a",
        0x58,
        32767,
        60_000,
        State.PREPARE_COMMIT,
        frozenset({TopicPartition("ro-1795377058", 1)}),
        0x1A204CFEE95,
        0x1A204CFEE95,
        previous_producer_id=0x58,
        next_producer_id=0x59,
        version=2,
    )
    assert encode(found, 1) == (KEY, prepared)
    completed = bytes.fromhex(
        "0001000000000000005900000000ea600401000001a204cfee96000001a204cfee95020008000000000000005802020002"
    )
    found = decode(KEY, completed)
    assert isinstance(found, Transaction)
    assert (found.producer_id, found.epoch, found.previous_producer_id) == (0x59, 0, 0x58)
    assert encode(found, 1) == (KEY, completed)


NAMES = st.text(st.characters(codec="utf-8"), max_size=200)
LONGS = st.integers(-1, 2**63 - 1)
TRANSACTIONS = st.builds(
    Transaction,
    NAMES,
    LONGS,
    st.integers(-1, 32767),
    st.integers(0, 2**31 - 1),
    st.sampled_from(State),
    st.frozensets(st.builds(TopicPartition, NAMES, st.integers(0, 2**31 - 1)), max_size=200),
    LONGS,
    LONGS,
    LONGS,
    LONGS,
    st.sampled_from([0, 2]),
    st.just(-1),
)


@given(TRANSACTIONS)
def test_whatever_is_written_is_read_again(known: Transaction) -> None:
    if known.state is State.EMPTY:
        known = known._replace(partitions=NO_PARTITIONS)
    key, value = encode(known, 1)
    assert decode(key, value) == known
    assert value is not None and least_size(known) <= len(key) + len(value)
    plain = known._replace(previous_producer_id=-1, next_producer_id=-1, version=0)
    assert decode(*encode(known, 0)) == plain


@given(st.lists(st.tuples(TRANSACTIONS, st.sampled_from("abc"), st.booleans(), st.integers(0, 1)), max_size=20))
def test_what_is_kept_of_large_transactions_changes_no_record(
    changes: list[tuple[Transaction, str, bool, int]],
) -> None:
    """Whichever ids take turns, whether a transaction goes on or another begins."""
    before, large = dict.fromkeys("abc", NO_PARTITIONS), LargePartitions()
    with pytest.MonkeyPatch.context() as patch:
        for name, few in (("_FEW_PARTITIONS", 0), ("_MANY_PARTITIONS", 0), ("_MOST_LARGE", 2)):
            patch.setattr(records, name, few)
        for other, name, goes_on, version in changes:
            partitions = other.partitions | before[name] if goes_on else other.partitions
            known = other._replace(id=name, state=State.ONGOING, partitions=partitions)
            known = known._replace(previous_producer_id=-1, next_producer_id=-1, version=0)
            assert decode(*encode(known, version, large)) == known
            before[name] = partitions
        assert len(large) <= 2


def test_a_partition_that_is_added_to_very_many_does_not_have_them_encoded_anew() -> None:
    some = [TopicPartition(f"t{number % 100}", number // 100) for number in range(5_000)]
    begun = Transaction("large", 1, 0, 60_000, State.ONGOING, frozenset(some), 0)
    more = begun._replace(partitions=begun.partitions | {TopicPartition("t7", 1_000)})
    large = LargePartitions()
    assert lines(encode, begun, 1, large) > lines(encode, more, 1, large) * 20
    ended = more._replace(state=State.PREPARE_COMMIT)
    assert lines(encode, begun, 1, large) > lines(encode, ended, 1, large) * 20
    assert decode(*encode(ended, 1, large)) == ended
    assert not large, "what is kept goes with the transaction"


def test_only_a_tombstone_forgets() -> None:
    assert encode(Forgotten("a"), 0) == (KEY, None)
    assert decode(KEY, None) == Forgotten("a")


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\0",
        struct.pack(">h", 2) + bytes(40),
        struct.pack(">hqhib", 0, 1, 0, 1, 6) + b"\xff\xff\xff\xff" + bytes(16),
        struct.pack(">hqhib", 0, 1, 0, 1, 1) + b"\x7f\xff\xff\xff" + bytes(16),
        struct.pack(">hqhib", 0, 1, 0, 1, 0) + b"\xff\xff\xff\xff" + bytes(9),
        struct.pack(">hqhib", 0, 1, 0, 1, 1) + b"\0\0\0\1\0\1t\xff\xff\xff\xff" + bytes(16),
        struct.pack(">hqhib", 0, 1, 0, 1, 1) + b"\0\0\0\1\xff\xff\0\0\0\0" + bytes(16),
        struct.pack(">hqhib", 1, 1, 0, 1, 0) + b"\0" + bytes(16) + b"\1\7\x05",
        struct.pack(">hqhib", 1, 1, 0, 1, 0) + b"\0" + bytes(16) + b"\1\0\4\0\0\0\0",
    ],
)
def test_a_value_that_cannot_be_read_names_its_id(value: bytes) -> None:
    found = decode(KEY, value)
    assert isinstance(found, Damaged)
    assert found.id == "a"
    assert found.why
    with pytest.raises(EncodeError, match="'a'"):
        encode(found, 0)


def test_fields_that_are_not_known_are_passed_over() -> None:
    value = TransactionLogValue(
        producer_id=1,
        next_producer_epoch=7,
        client_transaction_version=2,
        transaction_status=State.ONGOING,
        transaction_partitions=[PartitionsSchema(topic="t", partition_ids=[1, 2])],
        transaction_start_timestamp_ms=5,
    )
    found = decode(KEY, b"\0\1" + schema.encode(value, 1))
    assert isinstance(found, Transaction)
    assert (found.producer_id, found.version, found.started_ms) == (1, 2, 5)
    assert found.partitions == {TopicPartition("t", 1), TopicPartition("t", 2)}


def test_keys() -> None:
    assert decode(b"\0\x01\0\x01a", b"") is None, "a kind that is not known"
    for broken in (b"", b"\0", b"\xff\xff\0\0", b"\0\0\0\x05a", b"\0\0\xff\xff", b"\0\0\xff\xfe", b"\0\0\0"):
        with pytest.raises(MalformedError):
            decode(broken, None)
    assert decode(b"\0\0\0\1\xff", None) == Forgotten("\ufffd")
    with pytest.raises(EncodeError):
        records.encode(Forgotten("x" * 40_000), 0)
