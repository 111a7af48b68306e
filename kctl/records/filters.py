"""Filters of records: `--key`, `--value` and `--header` globs, `--grep`, `--filter`, all of which must hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import translate

from kctl.errors import Exit, KctlError
from kctl.records.located import Located

Wanted = Callable[[Located], bool]
_Bytes = Callable[[bytes | None], bool]


def is_exact(glob: str) -> bool:
    return not set("*?[") & set(glob)


def glob_test(glob: str) -> _Bytes:
    """No glob matches a record that has no such thing, not even `*`."""
    if is_exact(glob):
        exact = glob.encode("utf-8", "surrogateescape")
        return lambda data: data == exact
    match = re.compile(translate(glob)).match
    return lambda data: data is not None and match(data.decode("utf-8", "surrogateescape")) is not None


def wanted(
    key: str | None = None,
    value: str | None = None,
    headers: Sequence[str] = (),
    grep: str | None = None,
    expression: str | None = None,
    now_ms: int = 0,
    utc: bool = False,
) -> Wanted | None:
    """None when everything is. `now_ms` and `utc` are for the times in an expression."""
    tests: list[Wanted] = []
    if key is not None:
        tests.append(_on_key(glob_test(key)))
    if value is not None:
        tests.append(_on_value(glob_test(value)))
    tests += [_on_header(header) for header in headers]
    if grep is not None:
        tests.append(_grep(grep))
    if expression is not None:
        from kctl.records.expressions import compile_expression

        tests.append(compile_expression(expression, now_ms, utc))
    if len(tests) <= 1:
        return tests[0] if tests else None
    return lambda at: all(test(at) for test in tests)


def _on_key(test: _Bytes) -> Wanted:
    return lambda at: test(at.record.key)


def _on_value(test: _Bytes) -> Wanted:
    return lambda at: test(at.record.value)


def _on_header(text: str) -> Wanted:
    name, equals, glob = text.partition("=")
    if not equals:
        return lambda at: any(key == name for key, _ in at.record.headers)
    test = glob_test(glob)
    return lambda at: any(key == name and test(data) for key, data in at.record.headers)


def _grep(pattern: str) -> Wanted:
    try:
        search = re.compile(pattern).search
    except re.error as error:
        raise KctlError(f'--grep "{pattern}": {error}', exit_code=Exit.USAGE) from None

    def test(at: Located) -> bool:
        return any(
            data is not None and search(data.decode("utf-8", "surrogateescape"))
            for data in (at.record.value, at.record.key)
        )

    return test
