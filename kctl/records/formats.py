"""Lines of text from records and records from such lines, by a format in kcat's words: `%k\\t%s\\n`.

%s %v  value            %S  its length, -1 of none      %R  that as four bytes
%k     key              %K  its length, -1 of none
%h     headers, n=v,…   %T  timestamp in milliseconds
%t     topic            %p  partition                   %o  offset
%%     a percent sign   \\n \\r \\t \\\\ \\xHH  as in C
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from kafkad.wire.records import Record
from kctl.errors import Exit, KctlError
from kctl.records.located import Located

Headers = tuple[tuple[str, bytes | None], ...]

_TOKEN = re.compile(r"%(.?)|\\(x[0-9a-fA-F]{2}|.?)|([^%\\]+)", re.DOTALL)
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\", "0": b"\0"}


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def headers_text(headers: Headers) -> bytes:
    return b",".join(
        name.encode("utf-8", "surrogateescape") + b"=" + (b"NULL" if value is None else value)
        for name, value in headers
    )


_VERBS: dict[str, tuple[bytes, Callable[[Located], bytes | int]]] = {
    "s": (b"%b", lambda at: at.record.value or b""),
    "v": (b"%b", lambda at: at.record.value or b""),
    "S": (b"%d", lambda at: _length(at.record.value)),
    "R": (b"%b", lambda at: _length(at.record.value).to_bytes(4, "big", signed=True)),
    "k": (b"%b", lambda at: at.record.key or b""),
    "K": (b"%d", lambda at: _length(at.record.key)),
    "h": (b"%b", lambda at: headers_text(at.record.headers)),
    "T": (b"%d", lambda at: at.record.timestamp),
    "t": (b"%b", lambda at: at.topic.encode()),
    "p": (b"%d", lambda at: at.partition),
    "o": (b"%d", lambda at: at.record.offset),
}
_READ = {"s": rb"(?P<value>.*?)", "k": rb"(?P<key>.*?)", "h": rb"(?P<headers>.*?)", "p": rb"(?P<partition>\d+)"}
_READ |= {"v": _READ["s"], "T": rb"(?P<timestamp>\d+)"}


def _pieces(text: str) -> list[tuple[str, bytes]]:
    """Verbs, and the bytes between them under the verb ''."""
    pieces: list[tuple[str, bytes]] = []
    for match in _TOKEN.finditer(text):
        verb, escape, plain = match.groups()
        if verb is not None and verb != "%":
            pieces.append((verb or "%", b""))
        elif verb:
            pieces.append(("", b"%"))
        elif plain is not None:
            pieces.append(("", plain.encode("utf-8", "surrogateescape")))
        else:
            pieces.append(("", _escaped(escape, text)))
    return pieces


def _escaped(escape: str, text: str) -> bytes:
    if escape.startswith("x") and len(escape) == 3:
        return bytes.fromhex(escape[1:])
    if escape not in _ESCAPES:
        raise _wrong(text, f'"\\{escape}" is none of \\n \\r \\t \\\\ \\0 \\xHH')
    return _ESCAPES[escape]


def _wrong(text: str, why: str) -> KctlError:
    return KctlError(f'format "{text}": {why}', exit_code=Exit.USAGE)


def unescaped(text: str) -> bytes:
    """A delimiter as typed: `\\t` is a tab."""
    return b"".join(plain if not verb else b"%" + verb.encode() for verb, plain in _pieces(text))


def formatter(text: str) -> Callable[[Located], bytes]:
    """A function that formats a record as `text` says; it adds nothing at the end."""
    template = b""
    getters: list[Callable[[Located], bytes | int]] = []
    for verb, plain in _pieces(text):
        if not verb:
            template += plain.replace(b"%", b"%%")
        elif verb in _VERBS:
            template += _VERBS[verb][0]
            getters.append(_VERBS[verb][1])
        else:
            raise _wrong(text, f"%{verb} is none of {' '.join('%' + known for known in _VERBS)} %%")
    if len(getters) == 1:
        (only,) = getters
        return lambda at: template % only(at)
    return lambda at: template % tuple(get(at) for get in getters)


class Parsed(NamedTuple):
    """The parts of a record that an input gives; None for those that it does not."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp: int | None = None
    partition: int | None = None
    topic: str | None = None

    def record(self, now_ms: int) -> Record:
        return Record(0, now_ms if self.timestamp is None else self.timestamp, self.key, self.value, self.headers)


def line_reader(text: str) -> Callable[[bytes], Parsed]:
    """A function that reads a line (without its end) as `text` says; ValueError when a line does not match."""
    pattern = b""
    seen: set[str] = set()
    for verb, plain in _pieces(text):
        if not verb:
            pattern += re.escape(plain)
            continue
        if verb not in _READ:
            raise _wrong(text, f"lines can be read with %k %s %v %h %T %p, not with %{verb}")
        if verb.replace("v", "s") in seen:
            raise _wrong(text, f"%{verb} is there twice")
        seen.add(verb.replace("v", "s"))
        pattern += _READ[verb]
    match_line = re.compile(pattern.removesuffix(re.escape(b"\n")), re.DOTALL).fullmatch

    def read(line: bytes) -> Parsed:
        found = match_line(line)
        if found is None:
            raise ValueError(f'is not like "{text}"')
        said = found.groupdict()
        return Parsed(
            said.get("key"),
            said.get("value"),
            parse_headers(said.get("headers") or b""),
            int(said["timestamp"]) if "timestamp" in said else None,
            int(said["partition"]) if "partition" in said else None,
        )

    return read


def parse_headers(text: bytes) -> Headers:
    """`n=v,n=v`, as %h prints them; a header without = has no value."""
    pairs = (pair.partition(b"=") for pair in text.split(b",") if pair)
    return tuple((name.decode("utf-8", "surrogateescape"), value if equals else None) for name, equals, value in pairs)
