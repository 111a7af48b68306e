"""One text of metrics out of those of several brokers."""

from __future__ import annotations

from kafkad.metrics import GAUGE, Family, Registry
from kafkad.supervisor.metrics import LINES_PER_PIECE, labelled, merged

ONE = """\
# HELP up Whether.
# TYPE up gauge
up 1
# HELP reads_total How many.
# TYPE reads_total counter
reads_total{topic="a b"} 2.0
"""
OTHER = """\
# HELP up Whether.
# TYPE up gauge
up 0
# HELP writes Sizes.
# TYPE writes summary
writes{quantile="0.5"} 1
writes_count 7
"""


def test_each_family_is_told_once_with_the_samples_of_all_brokers() -> None:
    assert "".join(merged({0: ONE, 3: OTHER})).splitlines() == [
        "# HELP up Whether.",
        "# TYPE up gauge",
        'up{broker="0"} 1',
        'up{broker="3"} 0',
        "# HELP reads_total How many.",
        "# TYPE reads_total counter",
        'reads_total{broker="0",topic="a b"} 2.0',
        "# HELP writes Sizes.",
        "# TYPE writes summary",
        'writes{broker="3",quantile="0.5"} 1',
        'writes_count{broker="3"} 7',
    ]


def test_a_brace_or_a_blank_in_a_label_is_left_as_it_is() -> None:
    assert labelled('x{group="a{b} c"} 1', 'broker="0"') == 'x{broker="0",group="a{b} c"} 1'


def test_only_a_newline_ends_a_line() -> None:
    name = "a\r\v\f\x1c\x1d\x1e\x85\u2028b 7\u2029c"
    registry = Registry()
    registry.add(lambda: [Family("lag", GAUGE, "Lag.", [((("group", name),), 3)])])
    assert "".join(merged({1: registry.collect()})) == (
        f'# HELP lag Lag.\n# TYPE lag gauge\nlag{{broker="1",group="{name}"}} 3\n'
    )


def test_long_texts_come_in_pieces() -> None:
    text = "# HELP x X.\n" + "".join(f'x{{n="{n}"}} 1\n' for n in range(LINES_PER_PIECE * 3))
    pieces = list(merged({0: text}))
    assert max(piece.count("\n") for piece in pieces) == LINES_PER_PIECE
    assert len(pieces) > 6
    assert "".join(pieces).count("\n") == LINES_PER_PIECE * 3 + 1
