"""Turns a declared message into Python functions for one version of it: its encoder, its decoder, its constructor.

The functions are written as source text and compiled. Everything a version decides (which fields, flexible or not,
null or not) is decided here, once; neighbouring fields of fixed size become one `struct` call, nested structs are
written in place rather than called. A Metadata answer of a thousand partitions is the case to be quick at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct
from typing import Any

from kafkad.wire import primitives
from kafkad.wire.primitives import MAX_TAGS, ArrayPackers, EncodeError, MalformedError, array_reader
from kafkad.wire.schema import (
    Decoder,
    DecoderInPieces,
    Encoder,
    EncoderInPieces,
    ErrorCount,
    ErrorCountInPieces,
    Field,
    Message,
    Schema,
    within,
)

PIECE = 64

_VARIABLE = frozenset({"string", "bytes", "records", "array", "struct"})


def compile_encoder(cls: type, version: int) -> Encoder:
    return _Encoder(cls, version, _is_flexible(cls, version)).compile()


def compile_decoder(cls: type, version: int) -> Decoder:
    return _Decoder(cls, version, _is_flexible(cls, version)).compile()


def compile_encoder_in_pieces(cls: type, version: int) -> EncoderInPieces:
    """The same, as a generator that stops after every `PIECE` items of arrays."""
    return _Encoder(cls, version, _is_flexible(cls, version), in_pieces=True).compile()


def compile_decoder_in_pieces(cls: type, version: int) -> DecoderInPieces:
    """The same, as a generator; it refuses more items of arrays than it is told."""
    return _Decoder(cls, version, _is_flexible(cls, version), in_pieces=True).compile()


def _is_flexible(cls: type, version: int) -> bool:
    schema = _schema(cls)
    if not within(version, schema.versions):
        raise ValueError(f"{cls.__name__} has versions {schema.versions}, not {version}")
    return within(version, schema.flexible)


def compile_init(cls: type) -> Callable[..., None]:
    source = _Source()
    parameters, body = [], []
    for field in _schema(cls).fields:
        if _is_fresh(field):
            parameters.append(f"{field.name}=UNSET")
            body.append(f"self.{field.name} = {_fresh(source, field)} if {field.name} is UNSET else {field.name}")
        else:
            parameters.append(f"{field.name}={field.default!r}")
            body.append(f"self.{field.name} = {field.name}")
    source.names["UNSET"] = object()
    with source.block(f"def __init__(self, *, {', '.join(parameters)}):" if parameters else "def __init__(self):"):
        for line in body or ["pass"]:
            source.line(line)
    init = source.compile("__init__", f"{cls.__module__}.{cls.__name__}")
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _schema(cls: type) -> Schema:
    if not issubclass(cls, Message):
        raise TypeError(f"{cls.__name__} is not declared with @message or @nested")
    return cls.__schema__


def compile_error_count(cls: type) -> ErrorCount:
    return _ErrorCount(cls).compile()


def compile_error_count_in_pieces(cls: type) -> ErrorCountInPieces:
    """The same, as a generator that stops after every `PIECE` items of arrays."""
    return _ErrorCount(cls, in_pieces=True).compile()


class _Source:
    """Python text in the making, and the objects it names."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self._lines: list[str] = []
        self._indent = ""
        self._count = 0

    def line(self, text: str) -> None:
        self._lines.append(self._indent + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(head)
        outer = self._indent
        self._indent += " "
        yield
        self._indent = outer

    def variable(self, what: str) -> str:
        self._count += 1
        return f"{what}{self._count}"

    def name(self, what: str, value: Any) -> str:
        """A name by which the text can say `value`."""
        found = self.variable(what)
        self.names[found] = value
        return found

    def primitive(self, name: str) -> str:
        self.names[name] = getattr(primitives, name)
        return name

    def compile(self, function: str, origin: str) -> Callable[..., Any]:
        scope = self.names
        exec(compile("\n".join(self._lines), f"<{origin}>", "exec"), scope)
        compiled: Callable[..., Any] = scope[function]
        return compiled


def _is_fresh(field: Field) -> bool:
    """True if the default is a new object each time."""
    return field.kind in {"array", "struct"} and field.default is not None


def _fresh(source: _Source, field: Field) -> str:
    return "[]" if field.kind == "array" else f"{source.name('Class', field.item)}()"


def _item_kind(field: Field) -> Field:
    """The element of an array, as if it were a field."""
    item = field.item
    if isinstance(item, type):
        return Field("struct", "0+", (), item=item)
    declared: Field = item()
    return declared


class _Compiler:
    """The part that encoder and decoder share: the walk over the fields of a struct."""

    def __init__(self, cls: type, version: int, flexible: bool, *, in_pieces: bool = False) -> None:
        self.cls = cls
        self.version = version
        self.flexible = flexible
        self.in_pieces = in_pieces
        self.source = _Source()

    def begin(self) -> None:
        self.source.line(f"piece = {PIECE}; yield" if self.in_pieces else "pass")

    def end_of_item(self) -> None:
        """Writes the end of the body of a loop over items."""
        if self.in_pieces:
            self.source.line("piece -= 1")
            self.source.line(f"if not piece: piece = {PIECE}; yield")

    def present(self, cls: type) -> tuple[list[Field], list[Field]]:
        """The fields of `cls` that this version has: those in order, and those with a tag."""
        fields = [field for field in _schema(cls).fields if within(self.version, field.versions)]
        return [f for f in fields if f.tag is None], sorted((f for f in fields if f.tag is not None), key=_tag)

    def absent(self, cls: type) -> list[Field]:
        return [field for field in _schema(cls).fields if not within(self.version, field.versions)]

    def nullable(self, field: Field) -> bool:
        return within(self.version, field.nullable)

    def origin(self, what: str) -> str:
        return f"{what} of {self.cls.__name__} v{self.version}"

    @staticmethod
    def runs(fields: list[Field]) -> Iterator[list[Field]]:
        """Neighbours of fixed size together, every other field alone."""
        run: list[Field] = []
        for field in fields:
            if field.kind in _VARIABLE:
                if run:
                    yield run
                    run = []
                yield [field]
            else:
                run.append(field)
        if run:
            yield run


def _tag(field: Field) -> int:
    return -1 if field.tag is None else field.tag


class _Encoder(_Compiler):
    def compile(self) -> Callable[..., Any]:
        with self.source.block("def write(out, m):"):
            self.begin()
            self._struct(self.cls, "m", "out")
        return self.source.compile("write", self.origin("encoder"))

    def _struct(self, cls: type, var: str, out: str) -> None:
        for field in self.absent(cls):
            if not field.ignorable:
                refuse = self.source.name("refuse", _refusal(cls, field, self.version))
                self.source.line(f"if {self._differs(var, field)}: {refuse}()")
        plain, tagged = self.present(cls)
        runs = list(self.runs(plain))
        ends_fixed = bool(runs) and runs[-1][0].kind not in _VARIABLE
        pad_last = self.flexible and not tagged and ends_fixed
        for run in runs:
            if run[0].kind in _VARIABLE:
                self._value(run[0], f"{var}.{run[0].name}", out)
            else:
                self._run(run, var, out, pad=pad_last and run is runs[-1])
        if tagged:
            self._tags(tagged, var, out)
        elif self.flexible and not pad_last:
            self.source.line(f"{out}.append(0)")

    def _run(self, run: list[Field], var: str, out: str, *, pad: bool) -> None:
        """One pack for all; `pad` adds the zero that says that no tagged fields follow."""
        layout = ">" + "".join(field.kind for field in run) + ("x" if pad else "")
        pack = self.source.name("pack", Struct(layout).pack)
        self.source.line(f"{out} += {pack}({', '.join(f'{var}.{field.name}' for field in run)})")

    def _differs(self, var: str, field: Field) -> str:
        """A condition: the field is not what it is by default."""
        value = f"{var}.{field.name}"
        if field.default is None:
            return f"{value} is not None"
        if field.kind == "array":
            return f"{value} is None or {value}"
        if field.kind == "struct":
            return f"{value} != {self.source.name('default', field.item())}"
        return f"{value} != {field.default!r}"

    def _tags(self, tagged: list[Field], var: str, out: str) -> None:
        line, tags, count = self.source.line, self.source.variable("tags"), self.source.variable("count")
        line(f"{tags} = bytearray(); {count} = 0")
        put = self.source.primitive("put_uvarint")
        for field in tagged:
            with self.source.block(f"if {self._differs(var, field)}:"):
                body = self.source.variable("body")
                line(f"{body} = bytearray(); {count} += 1")
                self._value(field, f"{var}.{field.name}", body)
                line(f"{put}({tags}, {field.tag}); {put}({tags}, len({body})); {tags} += {body}")
        line(f"{put}({out}, {count}); {out} += {tags}")

    def _value(self, field: Field, value: str, out: str) -> None:
        if field.kind == "array":
            self._nullable(field, value, out, self._null(field), lambda: self._array(field, value, out))
        elif field.kind == "struct":
            null = b"\xff" if field.tag is None else b"\0"
            self._nullable(field, value, out, null, lambda: self._inner(field, value, out))
        elif field.kind in _VARIABLE:
            put = self.source.primitive(f"put_{'compact_' if self.flexible else ''}{field.kind}")
            call = f"{put}({out}, {value})"
            self._nullable(field, value, out, self._null(field), lambda: self.source.line(call))
        else:
            self.source.line(f"{out} += {self.source.name('pack', Struct('>' + field.kind).pack)}({value})")

    def _null(self, field: Field) -> bytes:
        if self.flexible:
            return b"\0"
        return b"\xff" * (2 if field.kind == "string" else 4)

    def _nullable(self, field: Field, value: str, out: str, null: bytes, write: Callable[[], None]) -> None:
        if not self.nullable(field):
            write()
            return
        with self.source.block(f"if {value} is None:"):
            self.source.line(f"{out} += {null!r}")
        with self.source.block("else:"):
            write()

    def _inner(self, field: Field, value: str, out: str) -> None:
        if self.nullable(field):
            self.source.line(f"{out}.append(1)")
        inner = self.source.variable("m")
        self.source.line(f"{inner} = {value}")
        self._struct(field.item, inner, out)

    def _array(self, field: Field, value: str, out: str) -> None:
        item = _item_kind(field)
        if item.kind not in _VARIABLE:
            packers = self.source.name("packers", ArrayPackers(item.kind, self.flexible))
            self.source.line(f"{out} += {packers}[len({value})](*{value})")
            return
        put_count = self.source.primitive("put_compact_count" if self.flexible else "put_count")
        self.source.line(f"{put_count}({out}, len({value}))")
        each = self.source.variable("m")
        with self.source.block(f"for {each} in {value}:"):
            if item.kind == "struct":
                self.source.line("pass")
                self._struct(item.item, each, out)
            else:
                self._value(item, each, out)
            self.end_of_item()


def _refusal(cls: type, field: Field, version: int) -> Callable[[], None]:
    def refuse() -> None:
        raise EncodeError(f"{cls.__name__}.{field.name} cannot be sent in version {version}, which has no such field")

    return refuse


class _ErrorCount(_Compiler):
    """Walks over the `error_code` of a response and of all structs in it, whatever the version."""

    def __init__(self, cls: type, *, in_pieces: bool = False) -> None:
        super().__init__(cls, 0, flexible=False, in_pieces=in_pieces)

    def compile(self) -> Callable[..., Any]:
        with self.source.block("def count(m):"):
            self.source.line(f"counts = {{}}; piece = {PIECE}")
            if self.in_pieces:
                self.source.line("if False: yield")
            self._struct(self.cls, "m")
            self.source.line("return counts")
        return self.source.compile("count", f"errors of {self.cls.__name__}")

    def _struct(self, cls: type, var: str) -> None:
        for field in _schema(cls).fields:
            if field.name == "error_code":
                code = f"{var}.error_code"
                self.source.line(f"if {code}: counts[{code}] = counts.get({code}, 0) + 1")
            elif field.kind in {"array", "struct"} and _has_errors(field):
                self._inner(field, f"{var}.{field.name}")

    def _inner(self, field: Field, value: str) -> None:
        each = self.source.variable("m")
        items = f"{value} or ()" if field.kind == "array" else f"() if {value} is None else ({value},)"
        with self.source.block(f"for {each} in {items}:"):
            self._struct(field.item, each)
            self.end_of_item()


def _has_errors(field: Field) -> bool:
    return isinstance(field.item, type) and any(
        inner.name == "error_code" or _has_errors(inner) for inner in _schema(field.item).fields
    )


class _Decoder(_Compiler):
    def compile(self) -> Callable[..., Any]:
        self.source.names |= {"new": object.__new__, "MalformedError": MalformedError}
        with self.source.block("def read(data, at, most):" if self.in_pieces else "def read(data, at):"):
            self.begin()
            if self.flexible:
                self.source.line(f"tags = {MAX_TAGS}")
            self._struct(self.cls, "m")
            self.source.line("return m, at")
        return self.source.compile("read", self.origin("decoder"))

    def _struct(self, cls: type, var: str) -> None:
        line = self.source.line
        line(f"{var} = new({self.source.name('Class', cls)})")
        plain, tagged = self.present(cls)
        for field in self.absent(cls) + tagged:
            line(f"{var}.{field.name} = {_fresh(self.source, field) if _is_fresh(field) else repr(field.default)}")
        for run in self.runs(plain):
            if run[0].kind in _VARIABLE:
                self._value(run[0], f"{var}.{run[0].name}")
            else:
                layout = Struct(">" + "".join(field.kind for field in run))
                targets = ", ".join(f"{var}.{field.name}" for field in run)
                line(f"{targets}, = {self.source.name('unpack', layout.unpack_from)}(data, at); at += {layout.size}")
        if self.flexible:
            self._tags(tagged, var)

    def _tags(self, tagged: list[Field], var: str) -> None:
        line, block = self.source.line, self.source.block
        line("if not data[at]: at += 1")
        if not tagged:
            line(f"else: at, tags = {self.source.primitive('skip_tags')}(data, at, tags)")
            return
        get, count = self.source.primitive("get_uvarint"), self.source.variable("count")
        tag, end = self.source.variable("tag"), self.source.variable("end")
        with block("else:"):
            line(f"{count}, at, tags = {self.source.primitive('get_tag_count')}(data, at, tags)")
            with block(f"for _ in range({count}):"):
                line(f"{tag}, at = {get}(data, at)")
                line(f"{end}, at = {get}(data, at)")
                line(f"{end} += at")
                line(f"if {end} > len(data): raise MalformedError('a tagged field runs past the end')")
                for field in tagged:
                    with block(f"{'if' if field is tagged[0] else 'elif'} {tag} == {field.tag}:"):
                        self._value(field, f"{var}.{field.name}")
                line(f"else: at = {end}")
                line(f"if at != {end}: raise MalformedError('a tagged field has another size than it says')")

    def _value(self, field: Field, target: str) -> None:
        line = self.source.line
        if field.kind == "struct":
            self._inner(field, target)
        elif field.kind == "array":
            self._array(field, target)
        elif field.kind in _VARIABLE:
            get = self.source.primitive(f"get_nullable_{'compact_' if self.flexible else ''}{field.kind}")
            line(f"{target}, at = {get}(data, at)")
            self._check_null(field, target)
        else:
            layout = Struct(">" + field.kind)
            line(f"{target}, = {self.source.name('unpack', layout.unpack_from)}(data, at); at += {layout.size}")

    def _check_null(self, field: Field, target: str) -> None:
        if not self.nullable(field):
            self.source.line(f"if {target} is None: {self.source.primitive('refuse_null')}(at)")

    def _inner(self, field: Field, target: str) -> None:
        inner = self.source.variable("m")
        if not self.nullable(field):
            self._struct(field.item, inner)
            self.source.line(f"{target} = {inner}")
            return
        self.source.line("at += 1")
        # -1 says null in a field without a tag, 0 in one with a tag; 1 is an object in both.
        with self.source.block(f"if data[at - 1] {'> 127' if field.tag is None else '== 0'}:"):
            self.source.line(f"{target} = None")
        with self.source.block("else:"):
            self._struct(field.item, inner)
            self.source.line(f"{target} = {inner}")

    def _array(self, field: Field, target: str) -> None:
        line, item = self.source.line, _item_kind(field)
        if item.kind not in _VARIABLE:
            get = self.source.name("get_array", array_reader(item.kind, self.flexible))
            line(f"{target}, at = {get}(data, at)")
            self._check_null(field, target)
            self._count_items(f"len({target} or ())")
            return
        count, items, each = (self.source.variable(what) for what in ("count", "items", "m"))
        get_count = self.source.primitive("get_compact_count" if self.flexible else "get_count")
        line(f"{count}, at = {get_count}(data, at)")
        self._count_items(count)
        line(f"{items} = [] if {count} >= 0 else None")
        self._check_null(field, items)
        with self.source.block(f"for _ in range({count}):"):
            if item.kind == "struct":
                self._struct(item.item, each)
            else:
                self._value(item, each)
            line(f"{items}.append({each})")
            self.end_of_item()
        line(f"{target} = {items}")

    def _count_items(self, count: str) -> None:
        if self.in_pieces:
            self.source.line(f"most -= {count}")
            self.source.line("if most < 0: raise MalformedError('it names more than is taken in one request')")
