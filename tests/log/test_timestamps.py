"""Searches by time pause, leave large batches to others, and bear that the log changes meanwhile."""

from __future__ import annotations

import pytest

from kafkad.errors import ErrorCode, KafkaError
from kafkad.log.deletion import delete_old_segments
from kafkad.log.log import Log
from kafkad.log.record_search import RecordSearch, SearchResult, look_through
from kafkad.log.time_search import max_timestamp, offset_for_timestamp
from kafkad.log.truncation import truncate_to
from kafkad.wire.compression import Codec
from kafkad.wire.records import Record, build_batch
from tests.log.conftest import Home, append, batch, pieces_of, remove_doomed, searched


def an_old_peak(log: Log, count: int) -> None:
    """The time index says nothing of the batches after the first, since it is the newest."""
    append(log, batch(timestamp=5000))
    for _ in range(count):
        append(log, batch(timestamp=1000))


def stamped(*stamps: int, codec: int = 0) -> bytearray:
    return build_batch([Record(n, stamp, None, b"") for n, stamp in enumerate(stamps)], base_offset=0, codec=codec)


def test_a_search_over_many_batches_is_done_in_pieces(home: Home) -> None:
    log = home.open(segment_bytes=1 << 20)
    an_old_peak(log, 1000)
    append(log, batch(timestamp=6000))
    count, found = pieces_of(offset_for_timestamp(log, 5500))
    assert found == (6000, 1001, 0)
    assert count >= 1000 // 64


def test_the_first_search_pauses_between_segments(home: Home) -> None:
    log = home.open(segment_bytes=200)
    for n in range(50):
        append(log, batch(timestamp=1000 + n))
    log = home.reopen()
    count, found = pieces_of(offset_for_timestamp(log, 1049))
    assert found == (1049, 49, 0)
    assert count >= len(log.segments) - 1
    assert pieces_of(offset_for_timestamp(log, 1048))[0] == 0


def test_the_newest_record_is_looked_for_where_it_is_known_to_be(home: Home) -> None:
    log = home.open(segment_bytes=1 << 20)
    append(log, batch(timestamp=4000))
    an_old_peak(log, 1000)
    assert pieces_of(max_timestamp(log)) == (0, (5000, 1, 0))
    log = home.reopen()
    assert pieces_of(max_timestamp(log)) == (0, (5000, 1, 0))


def test_below_the_start_of_the_log_nothing_is_newest(home: Home) -> None:
    log = home.open(segment_bytes=1000)
    append(log, stamped(9000, 100, 300, 300, 200))
    log.increment_start_offset(1)
    assert searched(max_timestamp(log)) == (300, 2, 0)
    append(log, stamped(299, 299))
    assert searched(max_timestamp(log)) == (300, 2, 0)
    log.roll()
    append(log, stamped(400, 500))
    assert searched(max_timestamp(log)) == (500, 8, 0)
    append(log, stamped(-1))
    log.increment_start_offset(9)
    assert searched(max_timestamp(log)) is None


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_batch_of_many_records_is_left_to_others(home: Home, codec: Codec) -> None:
    log = home.open(segment_bytes=1 << 20)
    sent = stamped(*([1000] * 1999), 2000, codec=codec)
    append(log, sent)
    search = offset_for_timestamp(log, 1500)
    asked = next(search)
    assert asked is not None and len(asked.batch) == len(sent)
    with pytest.raises(StopIteration) as end:
        search.send(look_through(asked))
    assert end.value.value == (2000, 1999, 0)


def test_a_small_batch_that_is_large_inside_is_left_to_others(home: Home) -> None:
    log = home.open()
    append(log, batch(bytes(1 << 20), b"", codec=Codec.ZSTD))
    asked = next(offset_for_timestamp(log, 1000))
    assert asked is not None
    assert look_through(asked) == SearchResult((1000, 0))


def test_small_batches_are_looked_through_here(home: Home) -> None:
    log = home.open()
    append(log, stamped(1, 2, 3, codec=Codec.GZIP))
    assert pieces_of(offset_for_timestamp(log, 2)) == (0, (2, 1, 0))


def test_records_that_lie_are_damage() -> None:
    sent = stamped(1, 2, 3)
    lying = bytes(sent[:57]) + b"\0\0\0\x04" + bytes(sent[61:])  # the number of records
    result = look_through(RecordSearch(lying, 0, 4))
    assert result.found is None and result.damage
    assert look_through(RecordSearch(lying[:-3], 0, 1)).damage


def test_damage_that_others_find_is_refused(home: Home) -> None:
    log = home.open()
    append(log, stamped(*([1000] * 2000), codec=Codec.ZSTD))
    search = offset_for_timestamp(log, 1000)
    next(search)
    with pytest.raises(KafkaError) as caught:
        search.send(SearchResult(None, "no record"))
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


def test_a_search_goes_on_while_retention_deletes_its_segment(home: Home) -> None:
    log = home.open(segment_bytes=1 << 20, retention_ms=1)
    an_old_peak(log, 200)
    log.roll()
    append(log, batch(timestamp=6000))
    search = offset_for_timestamp(log, 6000)
    next(search)  # the first segment is known, but nothing was looked for
    home.clock.advance(1_000_000)
    assert delete_old_segments(log, home.clock.now_ms(), upto=log.end_offset - 1) == 1
    remove_doomed(log, 1 << 60)
    assert pieces_of(search)[1] == (6000, 201, 0)


def test_a_search_in_a_deleted_segment_ends_there(home: Home) -> None:
    log = home.open(segment_bytes=1 << 20, retention_ms=1)
    append(log, batch(timestamp=10))
    an_old_peak(log, 200)
    append(log, batch(timestamp=9000))
    log.roll()
    append(log, batch(timestamp=9999))
    assert searched(offset_for_timestamp(log, 1)) is not None
    search = offset_for_timestamp(log, 6000)
    next(search)  # among the batches of the first segment
    home.clock.advance(1_000_000)
    assert delete_old_segments(log, home.clock.now_ms(), upto=log.end_offset - 1) == 1
    remove_doomed(log, 1 << 60)
    assert pieces_of(search)[1] == (9000, 202, 0)


def test_a_search_begins_anew_after_a_truncation(home: Home) -> None:
    log = home.open(segment_bytes=1 << 20)
    an_old_peak(log, 500)
    append(log, batch(timestamp=6000))
    search = offset_for_timestamp(log, 5500)
    next(search)
    truncate_to(log, 3)
    for stamp in (5800, 5900):
        append(log, batch(timestamp=stamp))
    assert pieces_of(search)[1] == (5800, 3, 0)


def test_a_search_in_a_log_that_is_replaced_is_refused(home: Home) -> None:
    log = home.open(segment_bytes=200)
    for n in range(20):
        append(log, batch(timestamp=1000 + n))
    search = offset_for_timestamp(log, 1019)
    next(search)
    log.retired = True
    with pytest.raises(KafkaError) as caught:
        pieces_of(search)
    assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
