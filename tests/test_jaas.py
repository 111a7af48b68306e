"""JAAS lines are read as Kafka reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafkad.jaas import parse_jaas

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "golden/security/parsers.json").read_text(encoding="utf-8")
)["jaas"]


@pytest.mark.parametrize("case", CASES, ids=[str(number) for number in range(len(CASES))])
def test_a_line_is_read_as_kafka_reads_it(case: dict[str, Any]) -> None:
    try:
        found = parse_jaas(case["text"])
    except ValueError as error:
        assert {"error": str(error)} == case["read"]
    else:
        assert {"module": found.module, "options": dict(found.options)} == case["read"]


def test_users_and_the_broker_itself() -> None:
    line = 'a.PlainLoginModule required username="admin" password="x" user_admin="x" user_b="y";'
    module = parse_jaas(line)
    assert (module.users, module.username, module.password) == ({"admin": "x", "b": "y"}, "admin", "x")


@pytest.mark.parametrize("text", ["m required a='never ends", "m required a='x\\", 'm required a="x\\400";', "/", "m/"])
def test_what_breaks_off_is_an_error_or_ends_the_text(text: str) -> None:
    try:
        parse_jaas(text)
    except ValueError as error:
        assert "never ends" not in str(error)
