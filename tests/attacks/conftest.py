"""The table at the end of a run of the attacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.attacks.attacked import Attacked, Suffered

_SUFFERED: list[Suffered] = []


def judge(attacked: Attacked, name: str, attack: Callable[[int], object], kafka_ms: float | None = None) -> None:
    suffered = attacked.suffer(name, attack, kafka_ms)
    _SUFFERED.append(suffered)
    suffered.check()


@pytest.fixture
def suffer(tmp_path: Path) -> Callable[..., None]:
    """Attack a fresh broker and hold it to the rule."""

    def suffer(
        name: str,
        attack: Callable[[int], object],
        prepare: Callable[[int], object] = lambda port: None,
        kafka_ms: float | None = None,
        settings: dict[str, str] | None = None,
        listeners: Mapping[str, int] | None = None,
    ) -> None:
        with Attacked(tmp_path / "attacked", settings, listeners) as attacked:
            prepare(attacked.port)
            judge(attacked, name, attack, kafka_ms)
        assert "Traceback" not in attacked.kafkad.log

    return suffer


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _SUFFERED:
        terminalreporter.section("longest wait of an honest client, memory over rest")
        for each in _SUFFERED:
            terminalreporter.line(str(each))
