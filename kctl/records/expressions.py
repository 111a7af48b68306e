"""`--filter`: a condition on a record, in a small language.

    value.amount > 100 and not key ~ "^test-" or headers.type == "order" and timestamp >= @-30m

There are `key`, `value`, `headers.NAME`, `topic`, `partition`, `offset` and `timestamp` (ms); what follows `key` or
`value` is looked up in it as JSON: `value.items[0].price`, `value["odd name"]`. Numbers, "text", true, false, null and
@TIME are constants; == != < <= > >= compare, ~ searches for a regular expression; and, or, not, ( ). A thing that is
not there is null; things of different kinds are neither equal nor less nor more; alone, a thing holds unless it is
null or false.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable
from typing import Any

from kctl.errors import Exit, KctlError
from kctl.records.located import Located

_Value = Callable[[Located], Any]

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)
    | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<time>@[^\s()]+)
    | (?P<sign>==|!=|<=|>=|[<>~().\[\]])
    | (?P<word>[A-Za-z_][\w-]*)
    )""",
    re.VERBOSE,
)
_CONSTANTS = {"true": True, "false": False, "null": None}
_ORDER = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_FIELDS: dict[str, _Value] = {
    "key": lambda at: _decoded(at.record.key),
    "value": lambda at: _decoded(at.record.value),
    "topic": lambda at: at.topic,
    "partition": lambda at: at.partition,
    "offset": lambda at: at.record.offset,
    "timestamp": lambda at: at.record.timestamp,
}
_DEEPEST = 100


def _decoded(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "surrogateescape")


def compile_expression(text: str, now_ms: int, utc: bool = False) -> Callable[[Located], bool]:
    """KctlError, with the place, when it is none. Times before now, and local ones, need to know when and where."""
    parser = _Parser(text, now_ms, utc)
    condition = parser.either()
    parser.end()
    return lambda at: _holds(condition(at))


def _holds(value: Any) -> bool:
    return value is not None and value is not False


class _Parser:
    """Each method reads one thing and gives what computes it."""

    def __init__(self, text: str, now_ms: int, utc: bool) -> None:
        self.text = text
        self.now_ms = now_ms
        self.utc = utc
        self.at = 0
        self.depth = 0
        self.kind, self.token, self.next_at = "", "", 0
        self.advance()

    def advance(self) -> str:
        token = self.token
        self.at = self.next_at
        match = _TOKEN.match(self.text, self.at)
        if match:
            self.kind, self.token, self.next_at = str(match.lastgroup), match[match.lastgroup or 0], match.end()
        else:
            self.kind, self.token, self.next_at = "", "", len(self.text)
            if self.text[self.at :].strip():
                raise self.wrong("cannot be read")
        return token

    def wrong(self, why: str) -> KctlError:
        rest = self.text[self.at :].strip() or "its end"
        hint = """like: value.amount > 100 and key ~ "^a" or headers.type == "order" """.strip()
        return KctlError(f'--filter "{self.text}": {why} at {rest}', exit_code=Exit.USAGE, hints=(hint,))

    def end(self) -> None:
        if self.kind:
            raise self.wrong("cannot go on")

    def takes(self, *tokens: str) -> bool:
        if self.kind not in ("sign", "word") or self.token not in tokens:
            return False
        self.advance()
        return True

    def either(self) -> _Value:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise self.wrong("is nested too deeply")
        tests = [self.both()]
        while self.takes("or"):
            tests.append(self.both())
        self.depth -= 1
        return tests[0] if len(tests) == 1 else lambda at: any(_holds(test(at)) for test in tests)

    def both(self) -> _Value:
        tests = [self.negated()]
        while self.takes("and"):
            tests.append(self.negated())
        return tests[0] if len(tests) == 1 else lambda at: all(_holds(test(at)) for test in tests)

    def negated(self) -> _Value:
        odd = False
        while self.takes("not"):
            odd = not odd
        test = self.compared()
        return (lambda at: not _holds(test(at))) if odd else test

    def compared(self) -> _Value:
        left = self.operand()
        if self.kind != "sign" or self.token not in ("==", "!=", "~", *_ORDER):
            return left
        sign = self.advance()
        if sign == "~":
            return _searches(left, self.pattern())
        return _comparison(sign, left, self.operand())

    def pattern(self) -> re.Pattern[str]:
        if self.kind != "text":
            raise self.wrong('~ needs a regular expression in "…"')
        try:
            return re.compile(_unquoted(self.token, pattern=True))
        except re.error as error:
            raise self.wrong(f"is no regular expression ({error})") from None
        finally:
            self.advance()

    def operand(self) -> _Value:
        if self.takes("("):
            inside = self.either()
            if not self.takes(")"):
                raise self.wrong("a ) is missing")
            return inside
        match self.kind:
            case "number":
                return _constant(json.loads(self.advance()))
            case "text":
                return _constant(_unquoted(self.advance()))
            case "time":
                return _constant(self.time())
            case "word" if self.token in _CONSTANTS:
                return _constant(_CONSTANTS[self.advance()])
            case "word" if self.token == "headers":
                self.advance()
                return self.header()
            case "word" if self.token in _FIELDS:
                return self.field(self.advance())
        raise self.wrong(f"there is none of {', '.join(_FIELDS)}, headers.NAME or a constant")

    def time(self) -> int:
        from kctl.texts.parsing import parse_time_ms

        try:
            return parse_time_ms(self.token, self.now_ms, self.utc)
        except KctlError as error:
            raise self.wrong(error.what) from None
        finally:
            self.advance()

    def header(self) -> _Value:
        path = self.path()
        if len(path) != 1:
            raise self.wrong("headers needs a name: headers.NAME")
        name = str(path[0])
        return lambda at: next((_decoded(data) for key, data in at.record.headers if key == name), None)

    def field(self, name: str) -> _Value:
        get, path = _FIELDS[name], self.path()
        if path and name not in ("key", "value"):
            raise self.wrong(f"{name} has no parts")
        return (lambda at: _part(get(at), path)) if path else get

    def path(self) -> list[str | int]:
        steps: list[str | int] = []
        while self.kind == "sign" and self.token in (".", "["):
            bracket = self.advance() == "["
            if self.kind == "text":
                steps.append(_unquoted(self.advance()))
            elif bracket and self.kind == "number" and self.token.isdigit():
                steps.append(int(self.advance()))
            elif not bracket and self.kind == "word":
                steps.append(self.advance())
            else:
                raise self.wrong("a name or an index is missing")
            if bracket and not self.takes("]"):
                raise self.wrong("a ] is missing")
        return steps


def _unquoted(token: str, *, pattern: bool = False) -> str:
    """A regular expression keeps its backslashes, but those before the quote."""
    quote, inside = token[0], token[1:-1]
    return inside.replace("\\" + quote, quote) if pattern else re.sub(r"\\(.)", r"\1", inside)


def _constant(value: Any) -> _Value:
    return lambda at: value


def _part(text: str | None, path: list[str | int]) -> Any:
    try:
        found = json.loads(text or "")
        for step in path:
            found = found[step]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return found


def _searches(left: _Value, pattern: re.Pattern[str]) -> _Value:
    def test(at: Located) -> bool:
        text = left(at)
        return text is not None and pattern.search(text if isinstance(text, str) else json.dumps(text)) is not None

    return test


def _same_kind(left: Any, right: Any) -> bool:
    """Numbers are of one kind; true and false are none."""
    return _kind(left) is _kind(right)


def _kind(value: Any) -> type:
    return float if type(value) is int else type(value)


def _comparison(sign: str, left: _Value, right: _Value) -> _Value:
    if sign in ("==", "!="):
        wanted = sign == "=="

        def equal(at: Located) -> bool:
            ours, theirs = left(at), right(at)
            return (_same_kind(ours, theirs) and ours == theirs) is wanted

        return equal
    compare = _ORDER[sign]

    def ordered(at: Located) -> bool:
        ours, theirs = left(at), right(at)
        return _same_kind(ours, theirs) and _kind(ours) in (float, str) and bool(compare(ours, theirs))

    return ordered
