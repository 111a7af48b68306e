from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkad.wire.records import Record
from kctl.errors import KctlError
from kctl.records.formats import Parsed, formatter, line_reader, parse_headers, unescaped
from kctl.records.jsonlines import json_line, read_json_line
from kctl.records.located import Located

HEADERS = (("a", b"1"), ("b", None), ("a", b""))
ONE = Located("orders", 3, Record(17, 1763703000123, b"key", b"value", HEADERS))
TOMBSTONE = Located("orders", 0, Record(0, -1, None, None))


@pytest.mark.parametrize(
    ("text", "one", "tombstone"),
    [
        ("%s\\n", b"value\n", b"\n"),
        ("%v", b"value", b""),
        ("%t/%p/%o", b"orders/3/17", b"orders/0/0"),
        ("%k\\t%s\\x41\\r\\\\", b"key\tvalueA\r\\", b"\tA\r\\"),
        ("%K %S", b"3 5", b"-1 -1"),
        ("%R%s", b"\0\0\0\5value", b"\xff\xff\xff\xff"),
        ("%T", b"1763703000123", b"-1"),
        ("%h;", b"a=1,b=NULL,a=;", b";"),
        ("100%% é", "100% é".encode(), "100% é".encode()),
        ("", b"", b""),
    ],
)
def test_formats(text: str, one: bytes, tombstone: bytes) -> None:
    assert (formatter(text)(ONE), formatter(text)(TOMBSTONE)) == (one, tombstone)


@pytest.mark.parametrize("text", ["%x", "%", "\\q", "\\", "\\x1"])
@pytest.mark.parametrize("make", [formatter, line_reader])
def test_wrong_formats(text: str, make: Callable[[str], object]) -> None:
    with pytest.raises(KctlError, match="format"):
        make(text)


@pytest.mark.parametrize(
    ("text", "line", "parsed"),
    [
        ("%k\\t%v", b"a\tb\tc", Parsed(b"a", b"b\tc")),
        ("%k:%s\\n", b"a:", Parsed(b"a", b"")),
        ("%s", b"", Parsed(None, b"")),
        ("%p|%T|%k|%s", b"2|5|k|v", Parsed(b"k", b"v", timestamp=5, partition=2)),
        ("%h %s", b"a=1,b v w", Parsed(None, b"v w", (("a", b"1"), ("b", None)))),
        ("%k", b"k\nl", Parsed(b"k\nl", None)),
    ],
)
def test_lines_read_by_format(text: str, line: bytes, parsed: Parsed) -> None:
    assert line_reader(text)(line) == parsed


def test_lines_that_are_not_like_the_format() -> None:
    with pytest.raises(ValueError, match="is not like"):
        line_reader("%k\\t%s")(b"no tab")
    with pytest.raises(KctlError, match="%o"):
        line_reader("%o %s")
    with pytest.raises(KctlError, match="twice"):
        line_reader("%s %v")


def test_delimiters_and_headers() -> None:
    assert unescaped("\\t") == b"\t"
    assert unescaped("::%k") == b"::%k"
    assert parse_headers(b"a=1=2,,b,c=") == (("a", b"1=2"), ("b", None), ("c", b""))


def test_json_line_has_no_character_that_steers_the_terminal() -> None:
    line = json_line(Located("t", 0, Record(0, 0, None, "é\x9b31m".encode())))
    assert "\x9b" not in line
    assert json.loads(line)["value"] == "é\x9b31m"


def test_json_line() -> None:
    assert json.loads(json_line(ONE)) == {
        "topic": "orders",
        "partition": 3,
        "offset": 17,
        "timestamp": "2025-11-21T05:30:00.123Z",
        "timestamp_ms": 1763703000123,
        "key": "key",
        "value": "value",
        "headers": [{"key": "a", "value": "1"}, {"key": "b", "value": None}, {"key": "a", "value": ""}],
    }
    said = json.loads(json_line(TOMBSTONE))
    assert (said["key"], said["value"], said["timestamp_ms"], said["headers"]) == (None, None, -1, [])
    assert json.loads(json_line(Located("t", 0, Record(0, 0, b"\xff", b"\xc3\xa9"))))["key"] == {"base64": "/w=="}


_data = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode)
_names = (st.binary(max_size=5) | st.text(max_size=5).map(str.encode)).map(
    lambda b: b.decode("utf-8", "surrogateescape")
)


@given(_data, _data, st.lists(st.tuples(_names, _data), max_size=3), st.integers(-1, 2**62), st.integers(0, 9))
def test_json_there_and_back_is_exact(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], timestamp: int, partition: int
) -> None:
    record = Record(7, timestamp, key, value, tuple(headers))
    line = json_line(Located("a.b-é", partition, record))
    assert "\n" not in line
    json.loads(line)
    parsed = read_json_line(line.encode())
    assert parsed == Parsed(key, value, tuple(headers), timestamp, partition, "a.b-é")
    assert parsed.record(now_ms=1) == record._replace(offset=0)


@pytest.mark.parametrize(
    ("line", "parsed"),
    [
        (b'{"value": {"a": [1, "\xc3\xa9"]}}', Parsed(None, '{"a":[1,"é"]}'.encode())),
        (b'{"key": 5, "value": null}', Parsed(b"5", None)),
        (b'{"value": "x", "headers": {"a": "1", "b": null}}', Parsed(None, b"x", (("a", b"1"), ("b", None)))),
        (b'{"value": {"base64": "AA==", "more": 1}}', Parsed(None, b'{"base64":"AA==","more":1}')),
        (b'{"value": {"base64": 1}, "partition": 2}', Parsed(None, b'{"base64":1}', partition=2)),
        (b'\xef\xbb\xbf{"value": [true, false, null, {}, []]}', Parsed(None, b"[true,false,null,{},[]]")),
        (
            b'{"value": {"\\ud800": "\\u0001 \\ud83d\\ude00"}}',
            Parsed(None, '{"\\ud800":"\\u0001 \U0001f600"}'.encode()),
        ),
    ],
)
def test_json_as_people_write_it(line: bytes, parsed: Parsed) -> None:
    assert read_json_line(line) == parsed


@pytest.mark.parametrize("number", ["1.10", "12345678901234567890123", "1e400", "1E-7", "-0", "-0.0", "9" * 5000])
def test_numbers_go_as_they_are_written(number: str) -> None:
    line = f'{{"key": {number}, "value": {{"a": [{number}, "b"]}}, "headers": {{"c": {number}}}}}'
    text = number.encode()
    assert read_json_line(line.encode()) == Parsed(text, b'{"a":[%b,"b"]}' % text, (("c", text),))


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[]",
        b'"x"',
        b"\xff",
        b'{"vlaue": "x"}',
        b'{"partition": "1"}',
        b'{"timestamp_ms": 1.5}',
        b'{"partition": true}',
        b'{"headers": 1}',
        b'{"headers": [1]}',
        b'{"headers": [{"value": 1}]}',
        b'{"value": {"base64": "!"}}',
        b'{"value": "\\ud800"}',
        b'{"headers": {"\\ud800": "x"}}',
        b'{"value": NaN}',
        b'{"value": {"a": [-Infinity]}}',
        b'{"partition": 1e3}',
        b'{"timestamp_ms": ' + b"9" * 5000 + b"}",
        b'{"value": ' + b"[" * 100_000 + b"}",
    ],
)
def test_json_that_is_wrong(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"^(is|has)"):
        read_json_line(line)
