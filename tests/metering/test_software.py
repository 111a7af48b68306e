"""What clients say that they are becomes labels of metrics, whose number has a bound."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from kafkad.broker.metering import _Connections


def listener(name: str, peers: list[tuple[tuple[str, str] | None, bool]]) -> Any:
    connections = {
        number: SimpleNamespace(peer=SimpleNamespace(software=software, authenticated=authenticated))
        for number, (software, authenticated) in enumerate(peers)
    }
    return SimpleNamespace(name=name, connections=connections, accepted=0, closed=0)


def counted(*listeners: Any) -> dict[tuple[str, ...], float]:
    samples = _Connections(cast(Any, SimpleNamespace(listeners=listeners)))._software()
    return {tuple(value for _, value in labels): count for labels, count in samples if not isinstance(labels, str)}


def test_made_up_software_is_counted_together_beyond_the_hundred_kinds_with_most_connections() -> None:
    peers = [((f"made-up-{number}", "1"), True) for number in range(1_000)]
    found = counted(listener("A", [*peers, *[(("java", "3.9"), True)] * 2]), listener("B", [(None, True)] * 3))
    assert found["A", "java", "3.9"] == 2
    assert found["B", "unknown", "unknown"] == 3
    assert found["A", "other", "other"] == 1_000 - 98
    assert len(found) == 101


def test_who_has_not_logged_in_names_no_metric() -> None:
    found = counted(listener("SASL", [(("made-up", "1"), False), (("java", "3.9"), True)]))
    assert found == {("SASL", "unknown", "unknown"): 1, ("SASL", "java", "3.9"): 1}
