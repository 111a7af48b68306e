"""Messages declared once: one field a line, with the versions that carry it.

    @message(key=12, versions="0-4", flexible="4+")
    class HeartbeatRequest(Request["HeartbeatResponse"]):
        group_id: str = string()
        group_instance_id: str | None = string("3+", nullable="3+", default=None)

A declared class is a plain mutable class with slots and a keyword-only constructor in which every field has a default.
Structs inside a message are declared with `@nested` above it. `encode` and `decode` go through functions that are
compiled for each (class, version) at its first use (`compiler.py`); importing a declaration costs little.

As in Kafka: a value that is not the default, in a field that the version does not have, is dropped when the field is
`ignorable` and refused (EncodeError) otherwise. Tagged fields nobody knows are skipped.
"""

from __future__ import annotations

import struct as _struct
from collections.abc import Callable, Generator
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, dataclass_transform

from kafkad.wire.primitives import Buffer, EncodeError, MalformedError

__all__ = [
    "Buffer",
    "EncodeError",
    "MalformedError",
    "Message",
    "Request",
    "count_errors",
    "count_errors_in_pieces",
    "decode",
    "decode_in_pieces",
    "encode",
    "message",
    "nested",
    "read",
    "write",
    "write_in_pieces",
]

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)

NEVER = (1, 0)
_LAST = 0x7FFF


def span(versions: str) -> tuple[int, int]:
    """`"3+"`, `"0-4"`, `"2"` or `""` as first and last version."""
    if not versions:
        return NEVER
    if versions.endswith("+"):
        return int(versions[:-1]), _LAST
    first, _, last = versions.partition("-")
    return int(first), int(last or first)


def within(version: int, versions: str) -> bool:
    first, last = span(versions)
    return first <= version <= last


class Field:
    """One declared field. `kind` is a fixed-size format of `struct` or one of string, bytes, records, array, struct."""

    __slots__ = ("default", "ignorable", "item", "kind", "name", "nullable", "tag", "versions")

    def __init__(
        self,
        kind: str,
        versions: str,
        default: Any,
        *,
        nullable: str = "",
        tag: int | None = None,
        ignorable: bool = False,
        item: Any = None,
    ) -> None:
        self.name = ""
        self.kind = kind
        self.versions = versions
        self.default = default
        self.nullable = nullable
        self.tag = tag
        self.ignorable = ignorable
        self.item = item


NumberField = Callable[..., Any]


def _fixed(kind: str, zero: Any) -> NumberField:
    def declare(versions: str = "0+", *, default: Any = zero, tag: int | None = None, ignorable: bool = False) -> Any:
        return Field(kind, versions, default, tag=tag, ignorable=ignorable)

    return declare


int8 = _fixed("b", 0)
int16 = _fixed("h", 0)
int32 = _fixed("i", 0)
int64 = _fixed("q", 0)
uint16 = _fixed("H", 0)
uint32 = _fixed("I", 0)
float64 = _fixed("d", 0.0)
boolean = _fixed("?", False)
uuid = _fixed("16s", bytes(16))


def string(
    versions: str = "0+",
    *,
    nullable: str = "",
    default: str | None = "",
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    return Field("string", versions, default, nullable=nullable, tag=tag, ignorable=ignorable)


def bytes_(
    versions: str = "0+",
    *,
    nullable: str = "",
    default: bytes | None = b"",
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    return Field("bytes", versions, default, nullable=nullable, tag=tag, ignorable=ignorable)


def records_(versions: str = "0+", *, nullable: str = "") -> Any:
    """Record batches, as they stand in a log. Read from a memoryview they are a part of it: nothing is copied."""
    return Field("records", versions, None, nullable=nullable)


def array(
    item: Any,
    versions: str = "0+",
    *,
    nullable: str = "",
    default: tuple[()] | None = (),
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """A list of `item`: a `@nested` class or the function that declares one such field (`array(int32)`)."""
    return Field("array", versions, default, nullable=nullable, tag=tag, ignorable=ignorable, item=item)


def struct(
    item: type,
    versions: str = "0+",
    *,
    nullable: str = "",
    default: tuple[()] | None = (),
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """One `@nested` object; without `default=None` a fresh one of only defaults."""
    return Field("struct", versions, default, nullable=nullable, tag=tag, ignorable=ignorable, item=item)


class Schema(NamedTuple):
    fields: tuple[Field, ...]
    key: int
    versions: str
    flexible: str


_OF_THE_DECLARATION = {"__dict__", "__weakref__", "__orig_bases__", "__parameters__"}
"""Names that Python adds to a class body and that the message class must not have."""


class Message:
    """The base of all declared classes. The constructor is compiled when the first object is made."""

    __slots__ = ()
    __schema__: Schema

    def __init__(self, **values: Any) -> None:
        from kafkad.wire.compiler import compile_init

        cls = type(self)
        cls.__init__ = compile_init(cls)  # type: ignore[method-assign]
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in self.__schema__.fields)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in self.__schema__.fields)
        return f"{type(self).__name__}({values})"


class Request(Generic[R_co]):
    """Tells type checkers which message answers a request: `class HeartbeatRequest(Request["HeartbeatResponse"])`."""

    __slots__ = ()
    __schema__: ClassVar[Schema]


def _declare(cls: type[T], key: int, versions: str, flexible: str) -> type[T]:
    body = dict(cls.__dict__)
    fields = []
    for name, value in cls.__dict__.items():
        if isinstance(value, Field):
            value.name = name
            fields.append(value)
        if isinstance(value, Field) or name in _OF_THE_DECLARATION:
            del body[name]
    body["__slots__"] = tuple(field.name for field in fields)
    body["__schema__"] = Schema(tuple(fields), key, versions, flexible)
    return type(cls.__name__, (Message,), body)


@dataclass_transform(kw_only_default=True)
def message(*, key: int = -1, versions: str, flexible: str = "") -> Callable[[type[T]], type[T]]:
    """Declares a message: its API key (-1: a record in a log), the versions there are and those with tagged fields."""
    return lambda cls: _declare(cls, key, versions, flexible)


@dataclass_transform(kw_only_default=True)
def nested(cls: type[T]) -> type[T]:
    """Declares a struct inside messages; versions in it are those of the message."""
    return _declare(cls, -1, "0+", "")


Encoder = Callable[[bytearray, Any], None]
Decoder = Callable[[Buffer, int], tuple[Any, int]]
EncoderInPieces = Callable[[bytearray, Any], Generator[None, None, None]]
DecoderInPieces = Callable[[Buffer, int, int], Generator[None, None, tuple[Any, int]]]
ErrorCount = Callable[[Any], dict[int, int]]
ErrorCountInPieces = Callable[[Any], Generator[None, None, dict[int, int]]]

_encoders: dict[tuple[type, int], Encoder] = {}
_decoders: dict[tuple[type, int], Decoder] = {}
_error_counts: dict[type, ErrorCount] = {}


def _encoder(cls: type, version: int) -> Encoder:
    """A class with an `encoder` of its own is packed by hand."""
    from kafkad.wire.compiler import compile_encoder

    by_hand: Callable[[int], Encoder] | None = getattr(cls, "encoder", None)
    encoder = _encoders[cls, version] = compile_encoder(cls, version) if by_hand is None else by_hand(version)
    return encoder


def _decoder(cls: type, version: int) -> Decoder:
    from kafkad.wire.compiler import compile_decoder

    decoder = _decoders[cls, version] = compile_decoder(cls, version)
    return decoder


def write(out: bytearray, value: Any, version: int) -> None:
    """Appends `value` as `version` has it. EncodeError when that version cannot say it: drop `out` then."""
    cls = type(value)
    encoder = _encoders.get((cls, version)) or _encoder(cls, version)
    try:
        encoder(out, value)
    except (AttributeError, TypeError, OverflowError, UnicodeEncodeError, _struct.error) as error:
        raise EncodeError(f"{cls.__name__} v{version}: {error}") from error


def encode(value: Any, version: int) -> bytes:
    out = bytearray()
    write(out, value, version)
    return bytes(out)


def read(cls: type[T], version: int, data: Buffer, at: int) -> tuple[T, int]:
    """The message that starts at `at`, and where it ends. MalformedError, and no other error, when there is none."""
    decoder = _decoders.get((cls, version)) or _decoder(cls, version)
    try:
        return decoder(data, at)
    except (IndexError, _struct.error) as error:
        raise MalformedError(f"{cls.__name__} v{version}: {error}") from error


def decode(cls: type[T], version: int, data: Buffer) -> T:
    """The message that `data` start with; what is left over is ignored, as Kafka does (librdkafka sends such bytes)."""
    return read(cls, version, data, 0)[0]


def count_errors(response: Any) -> dict[int, int]:
    """How often each error code stands in a response, at the top or within; 0 is none."""
    cls = type(response)
    count = _error_counts.get(cls)
    if count is None:
        from kafkad.wire.compiler import compile_error_count

        count = _error_counts[cls] = compile_error_count(cls)
    return count(response)


# In pieces: generators that stop again and again, so that nobody waits while a large message is worked on.


_encoders_in_pieces: dict[tuple[type, int], EncoderInPieces] = {}
_decoders_in_pieces: dict[tuple[type, int], DecoderInPieces] = {}
_error_counts_in_pieces: dict[type, ErrorCountInPieces] = {}


def _encoder_in_pieces(cls: type, version: int) -> EncoderInPieces:
    from kafkad.wire.compiler import compile_encoder_in_pieces

    encoder = _encoders_in_pieces[cls, version] = compile_encoder_in_pieces(cls, version)
    return encoder


def _decoder_in_pieces(cls: type, version: int) -> DecoderInPieces:
    from kafkad.wire.compiler import compile_decoder_in_pieces

    decoder = _decoders_in_pieces[cls, version] = compile_decoder_in_pieces(cls, version)
    return decoder


def write_in_pieces(out: bytearray, value: Any, version: int) -> Generator[None, None, None]:
    """As `write`."""
    cls = type(value)
    encoder = _encoders_in_pieces.get((cls, version)) or _encoder_in_pieces(cls, version)
    try:
        yield from encoder(out, value)
    except (AttributeError, TypeError, OverflowError, UnicodeEncodeError, _struct.error) as error:
        raise EncodeError(f"{cls.__name__} v{version}: {error}") from error


def decode_in_pieces(cls: type[T], version: int, data: Buffer, most: int) -> Generator[None, None, T]:
    """As `decode`. MalformedError too when arrays have more than `most` items altogether."""
    decoder = _decoders_in_pieces.get((cls, version)) or _decoder_in_pieces(cls, version)
    try:
        message: T
        message, _ = yield from decoder(data, 0, most)
        return message
    except (IndexError, _struct.error) as error:
        raise MalformedError(f"{cls.__name__} v{version}: {error}") from error


def count_errors_in_pieces(response: Any) -> Generator[None, None, dict[int, int]]:
    """As `count_errors`."""
    cls = type(response)
    count = _error_counts_in_pieces.get(cls)
    if count is None:
        from kafkad.wire.compiler import compile_error_count_in_pieces

        count = _error_counts_in_pieces[cls] = compile_error_count_in_pieces(cls)
    return (yield from count(response))
