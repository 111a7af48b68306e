"""Lines and JSON on a stream, and levels that change while running."""

import io
import json
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkad import loggers
from kafkad.api import answering, logins
from kafkad.cluster import tokens
from kafkad.errors import ErrorCode, KafkaError
from kafkad.group import stored


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    top, root = logging.getLogger("kafkad"), logging.getLogger()
    before = (top.handlers, top.level, top.propagate, root.handlers, root.level)
    yield
    top.handlers, level, top.propagate, root.handlers, root_level = before
    top.setLevel(level)
    root.setLevel(root_level)
    logging.getLogger("kafkad.log.segment").setLevel(logging.NOTSET)


def logged(style: str = "text", level: str = "info") -> io.StringIO:
    stream = io.StringIO()
    loggers.setup(style, level, stream)
    return stream


def test_a_line_has_time_level_part_and_message() -> None:
    stream = logged()
    logging.getLogger("kafkad.log.manager").info("%d logs loaded", 7)
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} INFO    log\.manager: 7 logs loaded\n", stream.getvalue()
    )


def test_an_exception_follows_its_line() -> None:
    stream = logged()
    try:
        raise OSError("disk is gone")
    except OSError:
        logging.getLogger("kafkad.log").exception("append failed")
    assert "log: append failed\nTraceback" in stream.getvalue()
    assert stream.getvalue().endswith("OSError: disk is gone\n")


def test_json_is_one_object_per_line() -> None:
    stream = logged("json")
    try:
        raise OSError("x")
    except OSError:
        logging.getLogger("kafkad.net").warning("peer %s\nsaid é", "10.0.0.1", exc_info=True)
    (line,) = stream.getvalue().splitlines()
    entry = json.loads(line)
    assert entry["level"] == "warning"
    assert entry["part"] == "net"
    assert entry["message"] == "peer 10.0.0.1\nsaid é"
    assert "OSError: x" in entry["exception"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", entry["time"])


def test_the_journal_gets_priorities_instead_of_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "journal").open("w+") as stream:
        status = os.fstat(stream.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}")
        loggers.setup("text", "info", stream)
        logging.getLogger("kafkad.net").exception("two\nlines")
        logging.getLogger("kafkad.net").info("one")
        stream.seek(0)
        assert stream.read() == "<3>net: two\\nlines\n<3>NoneType: None\n<6>net: one\n"


def test_a_message_cannot_pass_for_another_line() -> None:
    stream = logged()
    logging.getLogger("kafkad.group").info("member %s joined é", "a\r\nb\x1b[2K\x85\u2028c\ud800")
    (line,) = stream.getvalue().splitlines()
    assert line.endswith(r"group: member a\r\nb\x1b[2K\x85\u2028c\ud800 joined é")


@pytest.mark.parametrize("style", ["text", "json"])
def test_a_message_cannot_fill_the_log(style: str) -> None:
    stream = logged(style)
    logging.getLogger("kafkad.group").info("%s", "x" * 32_000)
    assert f"{'x' * 4000}… (28000 characters were cut off)" in stream.getvalue()
    assert len(stream.getvalue()) < 4_300


@pytest.mark.parametrize("style", ["text", "json"])
@pytest.mark.parametrize("text", ["\U000e0001", "\x01", "\n"])
def test_nor_can_what_has_to_be_escaped(style: str, text: str) -> None:
    stream = logged(style)
    logging.getLogger("kafkad.group").info("%s", text * 10_000)
    assert len(stream.getvalue()) < 4_300


def test_nor_does_what_is_cut_off_cost_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    escaped = []

    def escape(text: str) -> str:
        escaped.append(len(text))
        return text

    stream = logged()
    monkeypatch.setattr(loggers, "escaped", escape)
    logging.getLogger("kafkad.group").info("%s", "\x01" * 1_000_000)
    assert stream.getvalue()
    assert max(escaped) < 5_000


def test_a_stream_that_is_not_the_journal_is_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOURNAL_STREAM", "1:2")
    stream = logged()
    logging.getLogger("kafkad.net").info("hello")
    assert not stream.getvalue().startswith("<")


def test_libraries_are_heard_when_they_warn() -> None:
    stream = logged()
    logging.getLogger("somelibrary").warning("careful")
    logging.getLogger("somelibrary").info("chatter")
    assert stream.getvalue().splitlines()[0].endswith("somelibrary: careful")
    assert "chatter" not in stream.getvalue()


def test_the_default_level_changes_while_running() -> None:
    stream = logged(level="warning")
    logger = logging.getLogger("kafkad.group")
    logger.info("unheard")
    loggers.set_default_level("debug")
    logger.debug("heard")
    assert "unheard" not in stream.getvalue()
    assert "heard" in stream.getvalue()


def test_single_loggers_have_levels_of_their_own() -> None:
    stream = logged()
    logger = logging.getLogger("kafkad.log.segment")
    assert loggers.levels()["kafkad.log.segment"] == "INFO"
    loggers.set_level("kafkad.log.segment", "TRACE")
    logger.debug("rolled")
    assert "rolled" in stream.getvalue()
    assert loggers.levels()["kafkad.log.segment"] == "DEBUG"
    assert loggers.levels()[loggers.ROOT] == "INFO"
    loggers.set_level("kafkad.log.segment", None)
    loggers.set_level(loggers.ROOT, "ERROR")
    assert loggers.levels()["kafkad.log.segment"] == "ERROR"


@pytest.mark.parametrize(
    ("name", "level", "code"),
    [
        ("kafkad.nowhere", "INFO", ErrorCode.INVALID_CONFIG),
        (loggers.ROOT, "LOUD", ErrorCode.INVALID_CONFIG),
        (loggers.ROOT, "debug", ErrorCode.INVALID_CONFIG),
        (loggers.ROOT, None, ErrorCode.INVALID_REQUEST),
    ],
)
def test_levels_that_are_refused(name: str, level: str | None, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as caught:
        loggers.set_level(name, level)
    assert caught.value.code is code


def test_of_several_brokers_on_one_stream_each_says_which_it_is() -> None:
    for style, expected in (("text", " INFO    broker 2: log: moved\n"), ("json", '"broker": 2, "part": "log"')):
        stream = io.StringIO()
        loggers.setup(style, "info", stream, broker=2)
        logging.getLogger("kafkad.log").info("moved")
        assert expected in stream.getvalue()


@pytest.mark.parametrize(
    "part", ["kafkad.net.server", logins.log.name, answering.log.name, tokens.log.name, stored.log.name]
)
def test_strangers_and_users_cannot_fill_the_log(part: str) -> None:
    """Ten lines of a kind a second; lines of another kind, and those of other parts, are all there."""
    stream = logged()
    log = logging.getLogger(part)

    coordinator = logging.getLogger("kafkad.txn.coordinator")

    def at(second: int, by: logging.Logger, text: str, *arguments: object) -> None:
        record = by.makeRecord(by.name, logging.WARNING, "", 0, text, arguments, None)
        record.created = second
        by.handle(record)

    for number in range(1_000):
        at(100, log, "refused %d", number)
    for _ in range(1_000):
        at(100, coordinator, "wants a time-out")
    log.info("something else")
    for number in range(20):
        logging.getLogger("kafkad.log.manager").info("created %d", number)
    at(107, log, "refused %d", 1_000)
    at(107, log, "refused %d", 1_001)
    lines = [line.partition(": ")[2] for line in stream.getvalue().splitlines()]
    assert lines == [
        *(f"refused {number}" for number in range(10)),
        *["wants a time-out"] * 10,
        "something else",
        *(f"created {number}" for number in range(20)),
        "refused 1000 (990 lines like this were left out before it)",
        "refused 1001",
    ]
