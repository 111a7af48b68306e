"""Protobuf schemas: compiled by protoc, as columns in Spark's JSON, and the bytes by which records name a message."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from kafkad_etl.registry.unsupported import Unsupported

MAIN = "schema.proto"
"""The name that the schema itself gets; others import it by none."""
_MAX_DEPTH = 50
_OWN = "google/protobuf/"
_TIMESTAMP = f"{_OWN}timestamp.proto"
_WRAPPERS = f"{_OWN}wrappers.proto"


class NoProtoc(Exception):
    """protoc is not there, or cannot work: this says nothing about the schema."""


class Compiled(NamedTuple):
    """A schema with everything that it imports."""

    files: str
    """A FileDescriptorSet in base64; the schema's own file is its last."""
    message: str
    """The full name of one of its messages."""


def compiled(text: str, message: str = "", references: Mapping[str, str] | None = None, beside: str = "") -> Compiled:
    """Compiles a .proto file. `message` is the full name, or the part of it that follows the package; the first message
    of the file by default. Imports are found among the references, and in the directory `beside`. Raises Unsupported or
    NoProtoc."""
    files = _descriptors(text, tuple(sorted((references or {}).items())), beside)
    names = [name for name, *_ in _messages(_files(files)[-1])]
    if not names:
        raise Unsupported("the schema has no message")
    if not message:
        return Compiled(files, names[0])
    package = _files(files)[-1].package
    for name in (message, f"{package}.{message}"):
        if name in names:
            return Compiled(files, name)
    raise Unsupported(f"the schema has no message {message}, but {', '.join(names)}")


def imports(files: str) -> list[str]:
    """What the schema imports, apart from Protobuf's own files."""
    return [name for name in _files(files)[-1].dependency if not name.startswith(_OWN)]


def every_import(files: str) -> list[str]:
    """The same, with what is imported there."""
    return [file.name for file in _files(files)[:-1] if not file.name.startswith(_OWN)]


def index_bytes(files: str, message: str) -> list[bytes]:
    """The bytes that may stand between a schema's id and the message itself, and say which of the schema's messages it
    is; those to write come first. None if the schema has no such message.

    Clients differ where a message has a map before another message in it: some count the message that Protobuf makes
    of a map's entries. Confluent's own for Java do not.
    """
    found = {name: places for name, *places in _messages(_files(files)[-1])}
    if message not in found:
        return []
    path, with_maps = found[message]
    paths = [path] if any(with_maps == other for other, _ in found.values()) else [path, with_maps]
    whole = [b"".join(_zigzag(number) for number in (len(each), *each)) for each in paths]
    return [b"\0", *whole] if path == (0,) else whole


def columns(schema: Compiled) -> dict[str, Any]:
    """Spark's struct for the message's fields."""
    return _struct(_found(schema), (), schema.message)


def faults(schema: Compiled, struct: Any) -> Iterator[str]:
    """The reasons why rows of this struct cannot be written as the message."""
    yield from _struct_faults(_found(schema), struct, "")


# --- compiling


@lru_cache(maxsize=64)
def _descriptors(text: str, references: tuple[tuple[str, str], ...], beside: str) -> str:
    import subprocess
    import sys
    from base64 import b64encode
    from importlib.util import find_spec
    from tempfile import TemporaryDirectory

    if find_spec("grpc_tools") is None:
        raise NoProtoc("protoc is not installed: pip install grpcio-tools")
    with TemporaryDirectory(prefix="kctl-proto-") as name:
        directory, into = Path(name, "files"), Path(name, "descriptors")
        _lay_out((*references, (MAIN, text)), directory)
        places = [f"-I{place}" for place in (directory, beside) if place]
        words = ["--include_imports", f"--descriptor_set_out={into}", MAIN]
        command = [sys.executable, "-m", "grpc_tools.protoc", *places, *words]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode:
            raise _complaint(done.stderr.replace(f"{directory}/", ""))
        return b64encode(into.read_bytes()).decode()


_UNNAMEABLE = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG)
"""Errors of files whose names no file system has, or not beside one another."""


def _lay_out(files: Iterable[tuple[str, str]], directory: Path) -> None:
    """Writes files by their names below a directory."""
    try:
        for path, content in files:
            file = (directory / path).resolve()
            if not file.is_relative_to(directory.resolve()):
                raise Unsupported(f"it imports {path}")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, encoding="utf-8")
    except ValueError as error:
        raise Unsupported(f"its files cannot be laid out: {error}") from error
    except OSError as error:
        kind = Unsupported if error.errno in _UNNAMEABLE else NoProtoc
        raise kind(f"its files cannot be laid out: {error}") from error


def _complaint(stderr: str) -> Unsupported | NoProtoc:
    """protoc's first one that names a file."""
    lines = [line for line in stderr.splitlines() if ".proto:" in line and ": warning:" not in line]
    return Unsupported(_placed(lines[0])) if lines else NoProtoc("protoc failed without a word")


def _placed(first: str) -> str:
    """schema.proto:3:5: … as line 3, column 5: …"""
    file, _, rest = first.partition(":")
    parts = rest.split(":", 2)
    if file == MAIN and len(parts) == 3 and parts[0].isdecimal():
        return f"line {parts[0]}, column {parts[1]}: {parts[2].strip()}"
    return first


def _files(files: str) -> Any:
    from base64 import b64decode

    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    return FileDescriptorSet.FromString(b64decode(files)).file


def _messages(file: Any) -> Iterator[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    """All messages of the file, outer ones first: the full name, and the indexes from the outside in, without and with
    the messages of maps."""

    def within(messages: Any, prefix: str, *paths: tuple[int, ...]) -> Iterator[Any]:
        number = 0
        for with_maps, message in enumerate(messages):
            if message.options.map_entry:
                continue
            name = f"{prefix}.{message.name}" if prefix else message.name
            own = (*paths[0], number), (*paths[1], with_maps)
            yield name, *own
            yield from within(message.nested_type, name, *own)
            number += 1

    yield from sorted(within(file.message_type, file.package, (), ()), key=lambda found: len(found[1]))


def _zigzag(number: int) -> bytes:
    """A signed number as Protobuf writes it."""
    number, found = number << 1, bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _found(schema: Compiled) -> Any:
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    for file in _files(schema.files):
        pool.Add(file)
    return pool.FindMessageTypeByName(schema.message)


# --- reading


def _struct(message: Any, around: tuple[str, ...], path: str) -> dict[str, Any]:
    if message.full_name in around or len(around) > _MAX_DEPTH:
        raise Unsupported(f"{path}: the message {message.full_name} contains itself, which no column can")
    inside = (*around, message.full_name)
    fields = [
        {"name": field.name, "type": _type(field, inside, f"{path}.{field.name}"), "nullable": True, "metadata": {}}
        for field in message.fields
    ]
    return {"type": "struct", "fields": fields}


def _type(field: Any, around: tuple[str, ...], path: str) -> Any:
    if _is_map(field):
        key, value = field.message_type.fields_by_number[1], field.message_type.fields_by_number[2]
        return {
            "type": "map",
            "keyType": _single(key, around, path),
            "valueType": _single(value, around, path),
            "valueContainsNull": True,
        }
    if field.is_repeated:
        return {"type": "array", "elementType": _single(field, around, path), "containsNull": True}
    return _single(field, around, path)


def _single(field: Any, around: tuple[str, ...], path: str) -> Any:
    if field.message_type is None:
        return _SCALARS[field.type]
    file = field.message_type.file.name
    if file == _TIMESTAMP:
        return "timestamp"
    if file == _WRAPPERS:
        return _SCALARS[field.message_type.fields_by_number[1].type]
    return _struct(field.message_type, around, path)


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


# By the numbers that FieldDescriptorProto.Type gives to types.
_DOUBLE, _FLOAT, _INT64, _UINT64, _INT32, _FIXED64, _FIXED32, _BOOL, _STRING = range(1, 10)
_BYTES, _UINT32, _ENUM, _SFIXED32, _SFIXED64, _SINT32, _SINT64 = range(12, 19)
_SCALARS = {
    _DOUBLE: "double",
    _FLOAT: "float",
    **dict.fromkeys((_INT64, _SFIXED64, _SINT64, _UINT32, _FIXED32), "long"),
    **dict.fromkeys((_UINT64, _FIXED64), "decimal(20,0)"),
    **dict.fromkeys((_INT32, _SFIXED32, _SINT32), "integer"),
    _BOOL: "boolean",
    **dict.fromkeys((_STRING, _ENUM), "string"),
    _BYTES: "binary",
}

# --- writing

_SMALLER = {
    "integer": ("byte", "short"),
    "long": ("byte", "short", "integer"),
    "decimal(20,0)": ("byte", "short", "integer", "long"),
    "double": ("float",),
}


def _struct_faults(message: Any, struct: Any, path: str) -> Iterator[str]:
    for column in struct["fields"]:
        field = message.fields_by_name.get(column["name"])
        name = f"{path}{column['name']}"
        if field is None:
            yield f"{message.full_name} has no field {name}"
        else:
            yield from _faults(field, column["type"], name)


def _faults(field: Any, kind: Any, name: str) -> Iterator[str]:
    if _is_map(field):
        if _kind(kind) != "map":
            yield f"{name} is {_text(kind)}, and the field is a map"
            return
        yield from _single_faults(field.message_type.fields_by_number[1], kind["keyType"], f"{name}.key")
        yield from _single_faults(field.message_type.fields_by_number[2], kind["valueType"], f"{name}.value")
    elif field.is_repeated:
        if _kind(kind) != "array":
            yield f"{name} is {_text(kind)}, and the field is repeated"
            return
        yield from _single_faults(field, kind["elementType"], f"{name}[]")
    else:
        yield from _single_faults(field, kind, name)


def _single_faults(field: Any, kind: Any, name: str) -> Iterator[str]:
    file = field.message_type.file.name if field.message_type is not None else ""
    if field.message_type is not None and file not in (_TIMESTAMP, _WRAPPERS):
        if _kind(kind) == "struct":
            yield from _struct_faults(field.message_type, kind, f"{name}.")
        else:
            yield f"{name} is {_text(kind)}, and the field is a {field.message_type.full_name}"
        return
    wanted = _single(field, (), name)
    if kind != wanted and kind not in _SMALLER.get(wanted, ()):
        yield f"{name} is {_text(kind)}, and the field is {_text(wanted)}"


def _kind(kind: Any) -> str:
    return kind if isinstance(kind, str) else str(kind["type"])


def _text(kind: Any) -> str:
    """A type as DDL names it, without what is inside."""
    return {"long": "BIGINT", "integer": "INT", "short": "SMALLINT", "byte": "TINYINT"}.get(
        _kind(kind), _kind(kind).upper()
    )
