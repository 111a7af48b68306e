"""The five codecs of Kafka's batches, each imported at its first use.

Writing follows what Java clients read everywhere: snappy in xerial's framing, lz4 frames of independent blocks. Reading
takes all that was ever written, and never allocates by a claimed size: it stops at `limit` bytes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum
from functools import partial


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 * 1024
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_FAST_LEVEL = 9  # compression.lz4.level's default names the fast compressor, not the ninth high one
_GZIP_WBITS = 31
_CHUNK = 64 * 1024


class CompressionError(ValueError):
    """Bytes that no compressor wrote, an unknown codec, or more than the limit."""


class TooLargeError(CompressionError):
    """More than the limit, whatever else may be wrong with it."""


def compress(codec: int, data: bytes | bytearray | memoryview, level: int | None = None) -> bytes:
    """`level` as in `compression.<codec>.level`; None is the codec's default."""
    if codec == Codec.NONE:
        return bytes(data)
    if codec == Codec.GZIP:
        deflate = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WBITS)
        return deflate.compress(data) + deflate.flush()
    if codec == Codec.SNAPPY:
        return _compress_snappy(data)
    if codec == Codec.LZ4:
        return _compress_lz4(data, level)
    if codec == Codec.ZSTD:
        import zstandard

        return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)
    raise CompressionError(f"unknown compression codec {codec}")


def decompress(codec: int, data: bytes | bytearray | memoryview, limit: int) -> bytes:
    """All of `data`, decompressed; CompressionError as soon as it would be more than `limit` bytes."""
    if codec == Codec.NONE:
        if len(data) > limit:
            raise TooLargeError(_too_large(limit))
        return bytes(data)
    chunks = _DECOMPRESSORS.get(codec)
    if chunks is None:
        raise CompressionError(f"unknown compression codec {codec}")
    parts = []
    size = 0
    for part in chunks(data, limit):
        size += len(part)
        if size > limit:
            raise TooLargeError(_too_large(limit))
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(limit: int) -> str:
    return f"decompresses to more than {limit} bytes"


def _gunzip(data: bytes | bytearray | memoryview, limit: int) -> Iterator[bytes]:
    rest: bytes | bytearray | memoryview = data
    if not rest:
        raise CompressionError("gzip: nothing")
    while rest:  # a gzip file may have several members
        inflate = zlib.decompressobj(_GZIP_WBITS)
        try:
            yield inflate.decompress(rest, limit + 1)
        except zlib.error as error:
            raise CompressionError(f"gzip: {error}") from None
        if not inflate.eof:
            raise CompressionError("gzip: truncated, or " + _too_large(limit))
        rest = inflate.unused_data


def _compress_snappy(data: bytes | bytearray | memoryview) -> bytes:
    import snappy

    parts = [_XERIAL_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = snappy.compress(bytes(view[start : start + _XERIAL_BLOCK]))
        parts.append(len(block).to_bytes(4, "big"))
        parts.append(block)
    return b"".join(parts)


def _unsnappy(data: bytes | bytearray | memoryview, limit: int) -> Iterator[bytes]:
    raw = bytes(data)
    if not raw.startswith(_XERIAL_MAGIC):
        yield _unsnappy_block(raw, limit)
        return
    at = len(_XERIAL_HEADER)
    if len(raw) < at:
        raise CompressionError("snappy: cut off in its header")
    while at < len(raw):
        if raw.startswith(_XERIAL_MAGIC, at):  # streams of one writer each, one after the other
            at += len(_XERIAL_HEADER)
            continue
        end = at + 4 + int.from_bytes(raw[at : at + 4], "big", signed=True)
        if end < at + 4 or end > len(raw):
            raise CompressionError(f"snappy: block at {at} ends outside")
        yield _unsnappy_block(raw[at + 4 : end], limit)
        at = end


def _unsnappy_block(block: bytes, limit: int) -> bytes:
    import snappy

    size = _snappy_size(block)
    if size > limit:
        raise TooLargeError(_too_large(limit))
    if size > 64 * len(block):  # a copy element makes 64 bytes at most and takes two
        raise CompressionError("snappy: the claimed size cannot be true")
    try:
        plain: bytes = snappy.uncompress(block)
    except (snappy.UncompressError, ValueError, RuntimeError) as error:
        raise CompressionError(f"snappy: {error}") from None
    return plain


def _snappy_size(block: bytes) -> int:
    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            return size
        shift += 7
    raise CompressionError("snappy: no size in front")


def _compress_lz4(data: bytes | bytearray | memoryview, level: int | None) -> bytes:
    import lz4.frame

    compressed: bytes = lz4.frame.compress(
        data,
        compression_level=0 if level in (None, _LZ4_FAST_LEVEL) else max(3, min(level, 12)),
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,  # Java's reader refuses linked blocks
        store_size=False,
    )
    return compressed


def _unlz4(data: bytes | bytearray | memoryview, limit: int) -> Iterator[bytes]:
    import lz4.frame

    frame: lz4.frame.LZ4FrameDecompressor = lz4.frame.LZ4FrameDecompressor()
    step = min(limit + 1, max(_CHUNK, 4 * len(data)))
    try:
        yield frame.decompress(_with_lz4_checksum(data), max_length=step)
        while not frame.eof and not frame.needs_input:
            yield frame.decompress(b"", max_length=step)
    except (RuntimeError, EOFError) as error:
        raise CompressionError(f"lz4: {error}") from None
    if not frame.eof:
        raise CompressionError("lz4: truncated")
    if frame.unused_data:  # Java reads over it, librdkafka does not
        raise CompressionError("lz4: bytes after its end")


def _with_lz4_checksum(data: bytes | bytearray | memoryview) -> bytes | bytearray | memoryview:
    """Clients before message format v1 computed the header checksum over the magic too (KAFKA-3160): mend it."""
    head = bytes(data[:15])
    if len(head) < 7 or not head.startswith(_LZ4_MAGIC):
        return data
    flags = head[4]
    end = 6 + (8 if flags & 0x08 else 0)
    if flags & 0x01 or end >= len(head):
        return data
    right = _xxh32_short(head[4:end]) >> 8 & 0xFF
    if head[end] == right or head[end] != _xxh32_short(head[:end]) >> 8 & 0xFF:
        return data
    return head[:end] + bytes((right,)) + bytes(data[end + 1 :])


def _xxh32_short(data: bytes) -> int:
    """xxHash32 with seed 0 of fewer than 16 bytes, which a frame descriptor is."""
    mask = 0xFFFFFFFF
    value = (0x165667B1 + len(data)) & mask
    words = len(data) // 4
    for word in struct.unpack_from(f"<{words}I", data):
        value = (value + word * 0xC2B2AE3D) & mask
        value = ((value << 17 | value >> 15) & mask) * 0x27D4EB2F & mask
    for byte in data[words * 4 :]:
        value = (value + byte * 0x165667B1) & mask
        value = ((value << 11 | value >> 21) & mask) * 0x9E3779B1 & mask
    value = (value ^ value >> 15) * 0x85EBCA77 & mask
    value = (value ^ value >> 13) * 0xC2B2AE3D & mask
    return value ^ value >> 16


def _unzstd(data: bytes | bytearray | memoryview, limit: int) -> Iterator[bytes]:
    """A frame cut off ends early without an error: the library does not report it; the count of records does."""
    import zstandard

    stream = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True)
    step = min(limit + 1, max(_CHUNK, 4 * len(data)))
    try:
        yield from iter(partial(stream.read, step), b"")
    except zstandard.ZstdError as error:
        raise CompressionError(f"zstd: {error}") from None


_DECOMPRESSORS: dict[int, Callable[[bytes | bytearray | memoryview, int], Iterator[bytes]]] = {
    Codec.GZIP: _gunzip,
    Codec.SNAPPY: _unsnappy,
    Codec.LZ4: _unlz4,
    Codec.ZSTD: _unzstd,
}
