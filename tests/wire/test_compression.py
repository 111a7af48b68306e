"""The five codecs: what others wrote, what others read, and what wants to burst."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib

import aiokafka.codec as aiokafka_codec
import kafka.codec as kafka_codec
import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkad.wire.compression import Codec, CompressionError, compress, decompress
from tests.wire.dump import LOGS

LIMIT = 1 << 20
FEW = settings(max_examples=30, deadline=None)
CODECS = pytest.mark.parametrize("codec", list(Codec))
COMPRESSED = pytest.mark.parametrize("codec", list(Codec)[1:])
LARGE = bytes(range(256)) * 3000
"""Many snappy and lz4 blocks."""


@CODECS
@FEW
@given(data=st.binary(max_size=5000))
def test_round_trips(codec: Codec, data: bytes) -> None:
    assert decompress(codec, memoryview(compress(codec, memoryview(data))), LIMIT) == data


@CODECS
def test_round_trips_many_blocks(codec: Codec) -> None:
    assert decompress(codec, compress(codec, LARGE), LIMIT) == LARGE


@pytest.mark.parametrize("library", [kafka_codec, aiokafka_codec], ids=["kafka-python", "aiokafka"])
@COMPRESSED
def test_clients_and_we_read_each_other(library: object, codec: Codec) -> None:
    name = codec.name.lower()
    assert bytes(getattr(library, f"{name}_decode")(compress(codec, LARGE))) == LARGE
    assert decompress(codec, bytes(getattr(library, f"{name}_encode")(LARGE)), LIMIT) == LARGE


@pytest.mark.parametrize(
    ("codec", "levels"), [(Codec.GZIP, (-1, 1, 9)), (Codec.LZ4, (1, 9, 17)), (Codec.ZSTD, (-131072, 1, 3, 22))]
)
def test_takes_all_of_kafkas_levels(codec: Codec, levels: tuple[int, ...]) -> None:
    for level in levels:
        assert decompress(codec, compress(codec, LARGE, level), LIMIT) == LARGE


def test_lz4_blocks_are_independent_as_java_wants_them() -> None:
    flags = compress(Codec.LZ4, LARGE)[4]
    assert flags & 0x20
    assert flags >> 6 == 1


def test_snappy_is_framed_as_xerial() -> None:
    assert compress(Codec.SNAPPY, b"x").startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")


def test_reads_plain_snappy() -> None:
    assert decompress(Codec.SNAPPY, snappy.compress(LARGE), LIMIT) == LARGE


def test_reads_xerial_streams_one_after_the_other() -> None:
    assert decompress(Codec.SNAPPY, compress(Codec.SNAPPY, b"one") + compress(Codec.SNAPPY, b"two"), LIMIT) == b"onetwo"


def test_reads_gzip_members_one_after_the_other() -> None:
    assert decompress(Codec.GZIP, gzip.compress(b"one") + gzip.compress(b"two"), LIMIT) == b"onetwo"


def test_reads_zstd_frames_of_all_kinds() -> None:
    framed = zstandard.ZstdCompressor(write_checksum=True).compress(LARGE)
    unsized = zstandard.ZstdCompressor(write_content_size=False).compress(b"end")
    assert decompress(Codec.ZSTD, framed + unsized, LIMIT) == LARGE + b"end"


def test_reads_linked_lz4_with_size_and_checksums() -> None:
    framed = lz4.frame.compress(LARGE, block_linked=True, store_size=True, content_checksum=True, block_checksum=True)
    assert decompress(Codec.LZ4, framed, LIMIT) == LARGE


def test_reads_the_broken_lz4_header_checksum_of_old_clients() -> None:
    """Kafka writes it still when it converts down to format v0."""
    (path,) = (LOGS / "old-formats" / "old-java-v0-lz4-0").glob("*0.log")
    wrapped = path.read_bytes()
    broken = wrapped[wrapped.index(b"\x04\x22\x4d\x18") : 12 + int.from_bytes(wrapped[8:12], "big")]
    with pytest.raises(RuntimeError):
        lz4.frame.decompress(broken)
    assert decompress(Codec.LZ4, broken, LIMIT).endswith(b"k17\xff\xff\xff\xff")


def test_refuses_any_other_lz4_header_checksum() -> None:
    framed = bytearray(compress(Codec.LZ4, LARGE))
    framed[6] ^= 0xFF
    with pytest.raises(CompressionError):
        decompress(Codec.LZ4, framed, LIMIT)


@pytest.mark.parametrize("codec", [5, 6, 7, -1])
def test_refuses_unknown_codecs(codec: int) -> None:
    for direction in (lambda: compress(codec, b"x"), lambda: decompress(codec, b"x", LIMIT)):
        with pytest.raises(CompressionError, match="unknown"):
            direction()


@CODECS
def test_the_limit_is_exact(codec: Codec) -> None:
    compressed = compress(codec, LARGE)
    assert decompress(codec, compressed, len(LARGE)) == LARGE
    with pytest.raises(CompressionError, match="more than"):
        decompress(codec, compressed, len(LARGE) - 1)


@COMPRESSED
def test_a_bomb_takes_no_more_than_the_limit(codec: Codec) -> None:
    bomb = compress(codec, bytes(64 << 20))
    decompress(codec, compress(codec, b"warm"), LIMIT)
    tracemalloc.start()
    try:
        with pytest.raises(CompressionError, match="more than"):
            decompress(codec, bomb, LIMIT)
        assert tracemalloc.get_traced_memory()[1] < 4 * LIMIT + 2 * len(bomb)
    finally:
        tracemalloc.stop()


def test_a_claimed_size_is_not_believed() -> None:
    with pytest.raises(CompressionError):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"x" * 10, 1 << 40)
    zstd = zstandard.ZstdCompressor().compress(b"x" * 100)
    claimed = zstd[:4] + b"\xa0" + (1 << 30).to_bytes(4, "little") + zstd[6:]
    tracemalloc.start()
    try:
        with pytest.raises(CompressionError):
            decompress(Codec.ZSTD, claimed, 1 << 40)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_truncation_is_seen(codec: Codec) -> None:
    compressed = compress(codec, LARGE)
    for end in (len(compressed) - 1, len(compressed) // 2, 10, 5):
        with pytest.raises(CompressionError):
            decompress(codec, compressed[:end], LIMIT)


def test_truncated_zstd_is_a_beginning() -> None:
    compressed = compress(Codec.ZSTD, LARGE)
    for end in (len(compressed) - 1, len(compressed) // 2, 10, 5):
        assert len(decompress(Codec.ZSTD, compressed[:end], LIMIT)) < len(LARGE)


@COMPRESSED
@FEW
@given(data=st.binary(max_size=300), at=st.integers(0, 400), new=st.integers(0, 255))
def test_broken_bytes_raise_one_error(codec: Codec, data: bytes, at: int, new: int) -> None:
    changed = bytearray(compress(codec, zlib.compress(data)))
    changed[at % len(changed)] = new
    for broken in (bytes(changed), data):
        try:
            plain = decompress(codec, broken, LIMIT)
        except CompressionError:
            continue
        assert len(plain) <= LIMIT
