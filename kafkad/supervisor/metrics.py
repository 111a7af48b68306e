"""Puts the metrics of several brokers into one text: each sample gets the label `broker`, each family is told once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kafkad.metrics import COUNTER, GAUGE, Family, Labels

LINES_PER_PIECE = 1000


def own_families(brokers: Iterable[tuple[int, bool, int]]) -> list[Family]:
    """Told by the supervisor alone, from each broker's id, whether it is up, and how often it was restarted."""
    up: list[tuple[Labels | str, float]] = []
    restarts: list[tuple[Labels | str, float]] = []
    for broker, is_up, restarted in brokers:
        label = (("broker", str(broker)),)
        up.append((label, float(is_up)))
        restarts.append((label, float(restarted)))
    return [
        Family("kafkad_broker_up", GAUGE, "1 if the broker is ready and answers.", up),
        Family("kafkad_broker_restarts_total", COUNTER, "How often the broker ended and was started again.", restarts),
    ]


def merged(texts: Mapping[int, str]) -> Iterator[str]:
    """In pieces with empty ones between, so that an event loop can serve others while this goes on. A family keeps the
    lines that explain it from the first broker that tells of it: Prometheus wants all of its samples together."""
    families: dict[str, list[str]] = {}
    for broker, text in texts.items():
        yield from _gathered(families, text, f'broker="{broker}"')
    for lines in families.values():
        for start in range(0, len(lines), LINES_PER_PIECE):
            yield "\n".join([*lines[start : start + LINES_PER_PIECE], ""])


def _gathered(families: dict[str, list[str]], text: str, label: str) -> Iterator[str]:
    lines: list[str] = []
    known = False
    for number, line in enumerate(text.removesuffix("\n").split("\n")):  # other line ends may be in a client's names
        if line.startswith("# HELP "):
            name = line.split(" ", 3)[2]
            known = name in families
            lines = families.setdefault(name, [])
        if not line.startswith("#"):
            lines.append(labelled(line, label))
        elif not known:
            lines.append(line)
        if number % LINES_PER_PIECE == 0:
            yield ""


def labelled(sample: str, label: str) -> str:
    """One sample with one more label, in front of its own."""
    name, brace, rest = sample.partition("{")
    if brace:
        return f"{name}{{{label},{rest}"
    name, _, value = sample.partition(" ")
    return f"{name}{{{label}}} {value}"
