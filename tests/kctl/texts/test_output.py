"""Rows in every format."""

from __future__ import annotations

import csv
import io
import json
from itertools import count, islice
from typing import Any

import pytest
import yaml

from kctl.errors import Exit, KctlError
from kctl.settings import Settings
from kctl.texts.output import (
    Column,
    Document,
    Writer,
    duration_text,
    known_sum_text,
    note,
    render_errors,
    rfc3339,
    size_text,
    text_of,
)
from kctl.texts.progress import ProgressLine

COLUMNS = (
    Column("topic", "Its name."),
    Column("partitions", "How many.", "number"),
    Column("size_bytes", "How large.", "size", "SIZE"),
    Column("health", "How it is.", "state"),
    Column("replicas", "Where.", "list", wide=True),
    Column("last_ms", "When last.", "time", machine=True),
)
ROWS: list[dict[str, Any]] = [
    {"topic": "orders", "partitions": 6, "size_bytes": 13_500_000, "health": "ok", "replicas": [2, 1], "last_ms": 0},
    {"topic": 'a,"b"\n', "partitions": None, "size_bytes": 999, "health": "offline", "replicas": [], "last_ms": None},
    {"topic": "zoo", "partitions": 12, "size_bytes": None, "health": "warn", "replicas": [3], "last_ms": 1700000001987},
]


@pytest.fixture
def settings() -> Settings:
    return Settings()


def write(settings: Settings, *, stream: bool = False) -> None:
    Writer(settings, COLUMNS, Document("topics list", stream=stream)).write(iter(ROWS))


def test_table(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    write(settings)
    assert capsys.readouterr().out == (
        "TOPIC    PARTITIONS     SIZE  HEALTH\n"
        "orders            6  13.5 MB  ok\n"
        'a,"b"\\n           -    999 B  offline\n'
        "zoo              12        -  warn\n"
    )


def test_wide_adds_columns(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    settings.output = "wide"
    write(settings)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["TOPIC", "PARTITIONS", "SIZE", "HEALTH", "REPLICAS"]
    assert [line.split()[-1] for line in lines[1:]] == ["2,1", "-", "3"]


def test_json(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    settings.output = "json"
    write(settings)
    whole = json.loads(capsys.readouterr().out)
    assert list(whole) == ["kctl", "command", "cluster_id", "items", "errors"]
    assert whole["items"][2] == {**ROWS[2], "last": "2023-11-14T22:13:21.987Z"}
    assert whole["items"][1]["last"] is None


def test_stream_of_json_is_one_object_a_line(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    settings.output = "json"
    write(settings, stream=True)
    assert [json.loads(line)["topic"] for line in capsys.readouterr().out.splitlines()] == ["orders", 'a,"b"\n', "zoo"]


def test_yaml(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    settings.output = "yaml"
    write(settings)
    assert [item["topic"] for item in yaml.safe_load(capsys.readouterr().out)["items"]] == ["orders", 'a,"b"\n', "zoo"]
    write(settings, stream=True)
    assert [item["size_bytes"] for item in yaml.safe_load_all(capsys.readouterr().out)] == [13_500_000, 999, None]


def test_csv(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    settings.output = "csv"
    write(settings)
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out, newline="")))
    assert rows[0] == [column.name for column in COLUMNS]
    assert rows[1:3] == [["orders", "6", "13500000", "ok", "[2, 1]", "0"], ['a,"b"\n', "", "999", "offline", "[]", ""]]


def test_names(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    settings.output, settings.limit = "name", 1
    write(settings)
    assert capsys.readouterr().out == "orders\n"


def test_columns_sort_and_no_headers(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    settings.columns, settings.sort, settings.no_headers = ("SIZE", "topic"), "-size_bytes", True
    write(settings)
    assert capsys.readouterr().out == '13.5 MB  orders\n  999 B  a,"b"\\n\n      -  zoo\n'


def test_unknown_column(settings: Settings) -> None:
    settings.columns = ("topics",)
    with pytest.raises(KctlError) as refused:
        Writer(settings, COLUMNS, Document("x"))
    assert (refused.value.exit_code, refused.value.hints) == (Exit.USAGE, ('did you mean "topic"?',))


def test_rows_without_end_are_not_collected(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    settings.limit = 3
    Writer(settings, COLUMNS[:2], Document("x")).write({"topic": "t", "partitions": n} for n in count())
    assert capsys.readouterr().out.count("\n") == 4
    settings.limit = None
    seen = Writer(settings, COLUMNS[:2], Document("x"))._table({"topic": "t", "partitions": n} for n in count())
    assert len(list(islice(seen, 2000))) == 2000


def test_screen_cuts_the_widest_text(
    settings: Settings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "24")
    settings.no_pager, settings.color = True, "never"
    Writer(settings, COLUMNS[:2], Document("x")).write([{"topic": "t" * 50, "partitions": 1}])
    assert capsys.readouterr().out.splitlines() == ["TOPIC         PARTITIONS", "ttttttttttt…           1"]


def test_screen_cuts_as_many_texts_as_have_to_be(
    settings: Settings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    settings.no_pager, settings.color, settings.no_headers = True, "never", True
    columns = [Column(name, "") for name in ("a", "b", "c")]
    row = {"a": "a" * 249, "b": "b" * 100, "c": "short"}
    Writer(settings, columns, Document("x")).write([row])
    (line,) = capsys.readouterr().out.splitlines()
    assert line == f"{'a' * 24}…  {'b' * 25}…  short"
    assert len(line) == 60


def narrow(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 30 columns from now on."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "30")
    settings.no_pager, settings.color = True, "never"


def test_what_a_screen_has_no_room_for_is_left_out_and_named(
    settings: Settings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow(settings, monkeypatch)
    write(settings)
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "TOPIC    PARTITIONS  HEALTH",
        "orders            6  ok",
        'a,"b"\\n           -  offline',
        "zoo              12  warn",
    ]
    assert err == "30 columns leave no room for SIZE: choose with --columns, or use -o json\n"


@pytest.mark.parametrize("how", ["named", "wide", "to be changed"])
def test_nothing_is_left_out_that_was_asked_for_or_has_to_be_judged(
    settings: Settings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    narrow(settings, monkeypatch)
    settings.columns = ("topic", "partitions", "size_bytes", "health") if how == "named" else ()
    settings.output = "wide" if how == "wide" else "table"
    Writer(settings, COLUMNS, Document("topics list", dry_run=how == "to be changed")).write(iter(ROWS))
    out, err = capsys.readouterr()
    assert (out.split()[2:4], err) == (["SIZE", "HEALTH"], "")


def test_a_table_of_each_topic_says_once_what_is_left_out(
    settings: Settings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow(settings, monkeypatch)
    writer = Writer(settings, COLUMNS, Document("topics describe"))
    heads = [line for line in (*writer.table(ROWS), *writer.table(ROWS)) if line.startswith("TOPIC")]
    assert heads == ["TOPIC    PARTITIONS  HEALTH"] * 2
    assert capsys.readouterr().err.count("leave no room") == 1


def test_signs_of_two_places_and_of_none_keep_columns_straight(
    settings: Settings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"topic": name, "partitions": 1} for name in ("検査", "cafe\u0301", "abcd", "検査" * 20)]
    Writer(settings, COLUMNS[:2], Document("x")).write(rows[:3])
    assert capsys.readouterr().out.splitlines()[1:] == [
        "検査            1",
        "cafe\u0301            1",
        "abcd            1",
    ]
    narrow(settings, monkeypatch)
    Writer(settings, COLUMNS[:2], Document("x")).write(rows)
    assert capsys.readouterr().out.splitlines()[-1] == f"{'検査' * 4}…{1:>13}"


def test_colour_marks_states(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    settings.color = "always"
    write(settings)
    out = capsys.readouterr().out
    assert "\x1b[31moffline" in out
    assert "\x1b[32mok" in out


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 KB"), (999_960, "1.0 MB"), (41_200_000_000, "41.2 GB")]
)
def test_sizes(size: int, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize(
    ("duration", "text"),
    [(900, "0s"), (59_000, "59s"), (192_000, "3m12s"), (3_600_000, "1h00m"), (7 * 86_400_000, "7d00h"), (-5000, "-5s")],
)
def test_durations(duration: int, text: str) -> None:
    assert duration_text(duration) == text


def test_impossible_times() -> None:
    assert rfc3339(2**62) is None
    assert text_of(Column("t", "", "time"))(2**62) == f"{2**62} ms"
    assert text_of(Column("t", "", "time"))(-1) == "-"


def test_many_errors_of_a_kind_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    errors = [KctlError(f"partition t-{number} has no leader", code="LEADER_NOT_AVAILABLE") for number in range(195)]
    render_errors([*errors, KctlError("another")], Settings())
    lines = capsys.readouterr().err.splitlines()
    assert lines[2:] == [
        "error: partition t-2 has no leader (LEADER_NOT_AVAILABLE)",
        "error: and 192 more like this (LEADER_NOT_AVAILABLE)",
        "error: another",
    ]


EVIL = "evil\x1b]0;owned\a\x1b[2J\x9b31m"
HIDING = "evil\x1b[8m"
FORGED = "evil\nundo: rm -rf /"


def test_no_name_steers_the_terminal(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    note(settings, EVIL)
    render_errors([KctlError(EVIL, hints=(EVIL,))], settings)
    Writer(settings, COLUMNS, Document("x")).print_text([f"{EVIL} \x1b[31mred\x1b[0m"])
    printed = capsys.readouterr()
    assert printed.err.count("evil\\x1b]0;owned\\x07\\x1b[2J\\x9b31m") == 3
    assert printed.out == "evil\\x1b]0;owned\\x07\\x1b[2J\\x9b31m \x1b[31mred\x1b[0m\n"


@pytest.mark.parametrize("has_lines", [False, True])
def test_no_name_conceals_what_follows_it(
    settings: Settings, capsys: pytest.CaptureFixture[str], has_lines: bool
) -> None:
    error = KctlError(HIDING, hints=(HIDING,))
    error.has_lines = has_lines
    note(settings, HIDING)
    render_errors([error], settings)
    ProgressLine(settings).say(HIDING)
    assert capsys.readouterr().err.count("evil\\x1b[8m") == 4


def test_no_name_forges_a_line(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    note(settings, FORGED)
    render_errors([KctlError(FORGED, hints=(FORGED,))], settings)
    Writer(settings, COLUMNS, Document("x")).print_text([FORGED])
    printed = capsys.readouterr()
    assert (len(printed.err.splitlines()), printed.out) == (3, "evil\\nundo: rm -rf /\n")


@pytest.mark.parametrize("name", [EVIL, FORGED])
@pytest.mark.parametrize("kind", ["text", "state", "list"])
def test_no_value_forges_a_row(kind: str, name: str) -> None:
    assert text_of(Column("x", "", kind))([name] if kind == "list" else name).isprintable()


def test_a_text_that_says_so_may_have_lines(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    error = KctlError("two\nlines\a")
    error.has_lines = True
    render_errors([error], settings)
    assert capsys.readouterr().err == "error: two\nlines\\x07\n"


@pytest.mark.parametrize("stream", [True, False])
def test_json_has_no_character_that_steers_the_terminal(
    settings: Settings, capsys: pytest.CaptureFixture[str], stream: bool
) -> None:
    settings.output = "json"
    row = {column.name: None for column in COLUMNS} | {"topic": EVIL}
    Writer(settings, COLUMNS, Document("x", stream)).write([row])
    out = capsys.readouterr().out
    assert "\x9b" not in out
    read = json.loads(out)
    assert (read if stream else read["items"][0])["topic"] == EVIL


def test_sorts_texts_and_bytes_in_one_column(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    settings.output, settings.sort = "json", "key"
    keys = ["b", {"base64": "/w=="}, None, "a", {"base64": "gA=="}]
    Writer(settings, [Column("key", "A key.")], Document("test")).write([{"key": key} for key in keys])
    sorted_keys = [item["key"] for item in json.loads(capsys.readouterr().out)["items"]]
    assert sorted_keys == [{"base64": "/w=="}, {"base64": "gA=="}, "a", "b", None]


def test_a_sum_says_what_is_not_known() -> None:
    sums = [known_sum_text(sizes) for sizes in ([600, 500], [600, None], [None], [])]
    assert sums == ["1.1 KB", "at least 600 B", "-", "0 B"]
