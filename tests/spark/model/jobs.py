"""Job files for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kafkad_etl.errors import EtlExit
from kafkad_etl.job import Mode
from kafkad_etl.model.loading import JobError, JobFile, Loaded, parse

SMALL = "version: 1\nname: orders\nsource: {topics: [orders]}\nsink: {type: none}\n"
FILE = Path("orders.yaml")


def loaded(
    text: str = SMALL,
    *,
    variables: Mapping[str, str] = {},
    sets: Sequence[str] = (),
    environment: Mapping[str, str] = {},
    mode: Mode | None = None,
) -> Loaded:
    return parse(text, JobFile(FILE, variables, sets, mode), environment)


def with_sets(*sets: str) -> Loaded:
    return loaded(sets=sets)


def mistakes(text: str = SMALL, *sets: str, **others: Any) -> list[str]:
    with pytest.raises(JobError) as caught:
        loaded(text, sets=sets, **others)
    assert caught.value.exit_code is EtlExit.USAGE
    return list(caught.value.mistakes)
