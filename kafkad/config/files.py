"""Configuration files: YAML (dotted or nested) and Kafka's `server.properties`, each value with its line; and the
reading of files that settings name."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import yaml


class ConfigError(Exception):
    """The configuration cannot be used; one sentence per problem, each saying where it is."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class Entry(NamedTuple):
    """`text` is None where nothing is said: `name:` in YAML, `name=` on a command line, which takes the file's away."""

    name: str
    text: str | None
    where: str
    folded: bool = False
    """True if it goes on in the next line only because that is indented, in YAML."""


_MOST_MB = 10


def content_of(path: str) -> bytes:
    """What a file holds that a setting names, perhaps by a link: clients may change settings, so that it must not take
    long. Raises OSError, or ValueError for what could go on for ever, such as a pipe, and for more than 10 MB."""
    with open(path, "rb", opener=_open_at_once) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError(f"{path} is no regular file")
        content = file.read((_MOST_MB << 20) + 1)
    if len(content) > _MOST_MB << 20:
        raise ValueError(f"{path} is larger than {_MOST_MB} MB")
    return content


def _open_at_once(path: str, flags: int) -> int:
    """Where `open` would wait until somebody opens the other end of a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


_LINE_END = re.compile(r"\r\n|\r|\n")
"""Java's. Everything else at which Python also ends a line may stand in a value."""


def is_properties(path: str, content: str) -> bool:
    """True for Kafka's format: by the ending, or else by the first line with content: Kafka's has `=`, YAML `:`."""
    ending = os.path.splitext(path)[1].lower()
    if ending in (".properties", ".yaml", ".yml"):
        return ending == ".properties"
    first = next((line for line in _LINE_END.split(content) if line.strip() and line.lstrip()[0] not in "#!"), "")
    return "=" in first.partition(":")[0]


def read_properties(path: str, content: str) -> list[Entry]:
    """Java's format: comments, `=`, `:` or a blank between name and value, lines continued by a backslash."""
    entries: dict[str, Entry] = {}
    for number, line in _logical_lines(content):
        name, value = _split_property(line)
        entries[name] = Entry(name, value, f"{path}:{number}")
    return list(entries.values())


def _logical_lines(content: str) -> list[tuple[int, str]]:
    lines: list[tuple[int, str]] = []
    pending = ""
    started = 0
    for number, raw in enumerate(_LINE_END.split(content), 1):
        line = raw.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        started = started if pending else number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        lines.append((started, pending + line))
        pending = ""
    if pending:
        lines.append((started, pending))
    return lines


_SEPARATOR = re.compile(r"((?:\\.|[^\\=: \t\f])*)(?:[ \t\f]*[=:][ \t\f]*|[ \t\f]+|$)(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _split_property(line: str) -> tuple[str, str]:
    match = _SEPARATOR.match(line)
    name, value = match.groups() if match else (line, "")
    return _ESCAPE.sub(_unescape, name), _ESCAPE.sub(_unescape, value)


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code[1:], 16)) if len(code) == 5 else _CONTROL.get(code, code)


def read_yaml(path: str, content: str, is_text: Callable[[str], bool]) -> list[Entry]:
    """Names may be dotted (`log.segment.bytes: 1`), nested (`log: {segment: {bytes: 1}}`) or both mixed. A value that
    `is_text`, by its name, is what stands there: only elsewhere `yes` is true, and `1_000` a number."""
    import yaml  # 15 ms that a start without a file does not pay

    loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        root = yaml.compose(content, Loader=loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{path}:{line}: this is not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: this is not YAML: {error}") from None
    if root is None:
        return []
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError(f"{path}:1: expected settings as `name: value`")
    entries: dict[str, Entry] = {}
    for entry in _YamlFlattener(path, is_text).mapping(root, ""):
        if entry.name in entries:
            raise ConfigError(f"{entry.where}: {entry.name} is already set at {entries[entry.name].where}")
        entries[entry.name] = entry
    return list(entries.values())


_SWITCHES = {"true": "true", "yes": "true", "on": "true", "false": "false", "no": "false", "off": "false"}


class _YamlFlattener:
    def __init__(self, path: str, is_text: Callable[[str], bool]) -> None:
        import yaml

        self._path = path
        self._is_text = is_text
        self._yaml = yaml
        self._seen: set[yaml.Node] = set()

    def mapping(self, node: yaml.MappingNode, prefix: str) -> list[Entry]:
        self._refuse_again(node)
        entries: list[Entry] = []
        for key, value in node.value:
            name = f"{prefix}{key.value}"
            if isinstance(value, self._yaml.MappingNode):
                entries += self.mapping(value, f"{name}.")
            else:
                entries.append(Entry(name, self._text(name, value), self._where(key), self._folded(value)))
        return entries

    def _text(self, name: str, node: yaml.Node) -> str | None:
        if isinstance(node, self._yaml.SequenceNode):
            self._refuse_again(node)
            return ",".join(self._text(name, member) or "" for member in node.value)
        if not isinstance(node, self._yaml.ScalarNode):
            raise ConfigError(f"{self._where(node)}: {name} takes a value or a list of values")
        kind = node.tag.rpartition(":")[2]
        if kind == "null":
            return None
        if self._is_text(name):
            return str(node.value)
        if kind == "bool":  # YAML also says yes, no, on and off
            return _SWITCHES.get(node.value.lower(), str(node.value))
        if kind == "int":
            return str(node.value).replace("_", "")
        return str(node.value)

    def _refuse_again(self, node: yaml.CollectionNode) -> None:
        """Lists of lists that are named over and over take for ever, and one that has itself never ends."""
        if node in self._seen:
            raise ConfigError(f"{self._where(node)}: only single values can be named with & and used again, no lists")
        self._seen.add(node)

    def _folded(self, node: yaml.Node) -> bool:
        if isinstance(node, self._yaml.SequenceNode):
            return any(map(self._folded, node.value))
        plain = isinstance(node, self._yaml.ScalarNode) and not node.style
        return plain and bool(node.start_mark.line != node.end_mark.line)

    def _where(self, node: yaml.Node) -> str:
        return f"{self._path}:{node.start_mark.line + 1}"
