"""Logging to stderr: readable lines or JSON, with levels that can be changed while running.

The part of kafkad that logs is its module: `kafkad.log.manager` shows as `log.manager`. Kafka's names for levels are
used towards clients (BROKER_LOGGER), Python's inside.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TextIO

from kafkad.errors import ErrorCode, KafkaError

ROOT = "root"
"""Kafka's name of the level for everything that has none of its own; here that of the logger `kafkad`."""

_KAFKA_LEVELS = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG,
}
_LONGEST_MESSAGE = 4_000
_LONGEST_ESCAPE = len("\\U0010ffff")
_QUOTES = 2
_LINES_A_SECOND = 10
_MOST_KNOWN = 1_000
"""Subjects whose lines are counted separately: clients can make up names."""
_NAMED = 20
_FROM_ANYBODY = (
    "kafkad.net.",
    "kafkad.api.logins",
    "kafkad.api.answering",
    "kafkad.cluster.tokens",
    "kafkad.api.produce",
    "kafkad.group.stored",
    "kafkad.txn.coordinator",
    "kafkad.txn.machine",
)
"""Parts whose lines anybody can cause who can connect, or log in."""
_SYSLOG = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6), (0, 7))


def setup(style: str, level: str, stream: TextIO | None = None, *, broker: int | None = None) -> None:
    """`style` is text or json, `level` one of debug, info, warn(ing), error. Replaces an earlier set-up.

    Of several brokers that log to one stream each says which it is, `broker`.
    """
    target = stream if stream is not None else sys.stderr
    handler = logging.StreamHandler(target)
    handler.setFormatter(_formatter(style, target, broker))
    handler.addFilter(_NoFlood())
    top = logging.getLogger("kafkad")
    top.handlers = [handler]
    top.propagate = False
    top.setLevel(level.upper())
    libraries = logging.getLogger()
    libraries.handlers = [handler]
    libraries.setLevel(logging.WARNING)


def set_default_level(level: str) -> None:
    """`kafkad.log.level` has changed."""
    logging.getLogger("kafkad").setLevel(level.upper())


def levels() -> dict[str, str]:
    """Every logger and the level in force for it, in Kafka's words."""
    top = logging.getLogger("kafkad")
    found = {ROOT: _kafka_level(top)}
    for name, logger in sorted(logging.root.manager.loggerDict.items()):
        if name.startswith("kafkad.") and isinstance(logger, logging.Logger):
            found[name] = _kafka_level(logger)
    return found


def check_level(name: str, level: str | None) -> None:
    """True if `set_level` would take it. Raises KafkaError as Kafka does."""
    if level is not None and level not in _KAFKA_LEVELS:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {name} to {level} as it is not a supported log level. "
            f"Valid log levels are {', '.join(sorted(_KAFKA_LEVELS))}",
        )
    if name != ROOT and name not in levels():
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
    if level is None and name == ROOT:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Removing the log level of the {ROOT} logger is not allowed")


def set_level(name: str, level: str | None) -> None:
    """Sets one logger's level, or with None lets it follow `root` again. Raises what `check_level` raises."""
    check_level(name, level)
    logger = logging.getLogger("kafkad" if name == ROOT else name)
    logger.setLevel(logging.NOTSET if level is None else _KAFKA_LEVELS[level])


def _kafka_level(logger: logging.Logger) -> str:
    effective = logger.getEffectiveLevel()
    return next((name for name, level in _KAFKA_LEVELS.items() if effective >= level), "TRACE")


def _formatter(style: str, stream: TextIO, broker: int | None) -> logging.Formatter:
    if style == "json":
        return _JsonLines(broker)
    return _JournalLines(broker) if _is_the_journal(stream) else _Lines(broker)


def _is_the_journal(stream: TextIO) -> bool:
    """systemd says which file the journal reads, in case a service has its stderr elsewhere."""
    announced = os.environ.get("JOURNAL_STREAM")
    if not announced:
        return False
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return announced == f"{status.st_dev}:{status.st_ino}"


class _NoFlood(logging.Filter):
    """Who connects again and again, guesses passwords or asks for tokens cannot fill the log: there are ten lines of a
    kind a second, and the first one after that says how many were left out."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: dict[str, tuple[int, int]] = {}
        """By the message without what it is about: a second, and how many lines there were in it."""

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.name.startswith(_FROM_ANYBODY):
            return True
        now = int(record.created)
        second, lines = self._lines.get(record.msg, (now, 0))
        left_out = 0
        if second != now:
            left_out, lines = max(lines - _LINES_A_SECOND, 0), 0
        self._lines[record.msg] = now, lines + 1
        if left_out:
            record.msg += f" ({left_out} lines like this were left out before it)"
        return lines < _LINES_A_SECOND


Later = Callable[[float, Callable[[], None]], object]
"""Calls something at a time of the monotonic clock."""


class LinesPerSecond:
    """Lines of an audit trail that anybody can cause: of one principal and subject ten a second, and then the number of
    the others, with some of them."""

    def __init__(
        self,
        monotonic_ms: Callable[[], float],
        later: Later,
        say_rest: Callable[[Sequence[str], int], None],
    ) -> None:
        self._monotonic_ms = monotonic_ms
        self._later = later
        self._say_rest = say_rest
        self._lines: dict[tuple[str, str], int] = {}
        """Since the second began."""
        self._left_out: dict[tuple[str, str], deque[str]] = {}
        """The last lines of each that has had more than its ten."""

    def admits(self, principal: str, subject: str, line: str) -> bool:
        """Whether it may be written at once."""
        about = principal, subject
        if about not in self._lines and len(self._lines) >= _MOST_KNOWN:
            about = principal, ""
        if not self._lines:
            self._later(self._monotonic_ms() + 1_000, self._second_over)
        count = self._lines[about] = self._lines.get(about, 0) + 1
        if count <= _LINES_A_SECOND:
            return True
        self._left_out.setdefault(about, deque(maxlen=_NAMED)).append(line)
        return False

    def _second_over(self) -> None:
        for about, lines in self._left_out.items():
            self._say_rest(lines, self._lines[about] - _LINES_A_SECOND)
        self._lines.clear()
        self._left_out.clear()


def _cut(text: str, written: Callable[[str], str]) -> str:
    """Names from clients may be in it, which must not fill the log: neither as they are, nor as they are `written`."""
    kept = text[:_LONGEST_MESSAGE]
    if len(written(kept)) > _LONGEST_MESSAGE + _QUOTES:
        kept = kept[: _LONGEST_MESSAGE // _LONGEST_ESCAPE]
    more = len(text) - len(kept)
    return f"{kept}… ({more} characters were cut off)" if more else text


def escaped(text: str) -> str:
    """With escapes for what could begin a new line in the log, or control a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _part(record: logging.LogRecord) -> str:
    return record.name.removeprefix("kafkad.")


class _Lines(logging.Formatter):
    """`2026-11-21 13:30:05.123 INFO  log.manager: message`, local time; of several brokers `broker 1: log.manager:`."""

    def __init__(self, broker: int | None) -> None:
        super().__init__()
        self._who = "" if broker is None else f"broker {broker}: "

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        return f"{moment}.{int(record.msecs):03d} {record.levelname:<7} {self._text(record)}"

    def _text(self, record: logging.LogRecord) -> str:
        text = f"{self._who}{_part(record)}: {escaped(_cut(record.getMessage(), escaped))}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


class _JournalLines(_Lines):
    """The journal has the time already, and wants each line's priority in front of it."""

    def format(self, record: logging.LogRecord) -> str:
        priority = next(priority for level, priority in _SYSLOG if record.levelno >= level)
        return "\n".join(f"<{priority}>{line}" for line in self._text(record).splitlines())


class _JsonLines(logging.Formatter):
    """One object per line; time in UTC."""

    def __init__(self, broker: int | None) -> None:
        super().__init__()
        self._who = {} if broker is None else {"broker": broker}

    def format(self, record: logging.LogRecord) -> str:
        import json  # only for those who log JSON

        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        entry = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            **self._who,
            "part": _part(record),
            "message": _cut(record.getMessage(), partial(json.dumps, ensure_ascii=False)),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)
