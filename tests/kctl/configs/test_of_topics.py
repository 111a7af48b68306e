from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from kafkad.errors import ErrorCode
from kafkad.wire.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from kafkad.wire.primitives import MalformedError
from kafkad.wire.schema import encode
from kctl.configs.of_topics import read_results, topic_settings
from kctl.errors import Exit
from kctl.reach.session import Session
from kctl.settings import Settings


def result(name: str, code: int = 0, **settings: str) -> DescribeConfigsResult:
    configs = [
        DescribeConfigsResourceResult(name=setting.replace("_", "."), value=value, config_source=1, synonyms=[])
        for setting, value in settings.items()
    ]
    message = "it is hidden" if code else None
    return DescribeConfigsResult(
        error_code=code, error_message=message, resource_type=2, resource_name=name, configs=configs
    )


def body(results: Sequence[DescribeConfigsResult]) -> bytes:
    return encode(DescribeConfigsResponse(results=list(results)), 4)


def test_topics_with_the_same_settings_share_them() -> None:
    frame = b"head" + body(
        [result("a", x_ms="1"), result("b"), result("c" * 200, x_ms="1"), result("d", x_ms="10"), result("e", code=3)]
    )
    found = list(read_results(frame, 4))
    assert [(r.name, r.code, [(e.name, e.value, e.source) for e in r.entries]) for r in found] == [
        ("a", 0, [("x.ms", "1", "topic")]),
        ("b", 0, []),
        ("c" * 200, 0, [("x.ms", "1", "topic")]),
        ("d", 0, [("x.ms", "10", "topic")]),
        ("e", 3, []),
    ]
    assert found[0].entries is found[2].entries
    assert [r.message for r in found] == [None] * 4 + ["it is hidden"]


def test_more_kinds_than_are_kept() -> None:
    names = [f"t{number}" for number in range(200)]
    frame = body([result(name, x=name) for name in names])
    assert [r.entries[0].value for r in read_results(frame, 0)] == names


def test_an_answer_that_is_cut() -> None:
    frame = body([result("a", x="1"), result("b", x="2")])
    for end in range(4, len(frame) - 1):  # the last byte are the tagged fields of the whole
        with pytest.raises((MalformedError, IndexError)):
            list(read_results(frame[:end], 0))


class _Connection:
    """One that has the answer already."""

    def __init__(self, results: Sequence[DescribeConfigsResult]) -> None:
        self._frame = b"head" + b"\0" + body(results)

    def version_of(self, _: object) -> int:
        return 4

    def tell(self, _: object) -> None:
        pass

    def receive_frame(self, *_: object) -> bytes:
        return self._frame


class _Session:
    settings = Settings()

    def __init__(self, *results: DescribeConfigsResult) -> None:
        self._connection = _Connection(results)

    def connection(self) -> _Connection:
        return self._connection


def test_settings_that_may_not_be_seen_are_an_error_like_any_other() -> None:
    session = cast(Session, _Session(result("a", x="1"), result("b", code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)))
    found = topic_settings(session, ["a", "b"])
    assert list(found.of) == ["a"]
    (error,) = found.errors
    assert (error.exit_code, error.with_code) == (
        Exit.UNAUTHORIZED,
        'settings of topic "b": it is hidden (TOPIC_AUTHORIZATION_FAILED)',
    )
    assert any("acls add" in hint for hint in error.hints)
