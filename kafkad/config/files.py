"""Configuration files: YAML (dotted or nested) and Kafka's `server.properties`, each value with its line; and the
reading of files that settings name."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from kafkad.opening import open_at_once
from kafkad.properties import parse_properties

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
    with open(path, "rb", opener=open_at_once) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError(f"{path} is no regular file")
        content = file.read((_MOST_MB << 20) + 1)
    if len(content) > _MOST_MB << 20:
        raise ValueError(f"{path} is larger than {_MOST_MB} MB")
    return content


def read_properties(path: str, content: str) -> list[Entry]:
    """Java's format; see `kafkad.properties`."""
    found = {each.name: Entry(each.name, each.value, f"{path}:{each.line}") for each in parse_properties(content)}
    return list(found.values())


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
    for entry in _YamlFlattener(path, is_text).entries(root):
        if entry.name in entries:
            raise ConfigError(f"{entry.where}: {entry.name} is already set at {entries[entry.name].where}")
        entries[entry.name] = entry
    return list(entries.values())


_MOST_VALUES = 100_000
_SWITCHES = {"true": "true", "yes": "true", "on": "true", "false": "false", "no": "false", "off": "false"}


class _YamlFlattener:
    def __init__(self, path: str, is_text: Callable[[str], bool]) -> None:
        import yaml

        self._path = path
        self._is_text = is_text
        self._yaml = yaml
        self._around: set[yaml.Node] = set()
        """The mappings and lists that the one at hand is in."""
        self._values = 0

    def entries(self, root: yaml.MappingNode) -> Iterator[Entry]:
        return self._mapping(root, "", self._where(root))

    def _mapping(self, node: yaml.MappingNode, prefix: str, where: str) -> Iterator[Entry]:
        with self._inside(node, where):
            for key, value in node.value:
                name, where = f"{prefix}{key.value}", self._where(key)
                if isinstance(value, self._yaml.MappingNode):
                    yield from self._mapping(value, f"{name}.", where)
                else:
                    yield Entry(name, self._text(name, value, where), where, self._folded(value))

    def _text(self, name: str, node: yaml.Node, where: str) -> str | None:
        if isinstance(node, self._yaml.SequenceNode):
            with self._inside(node, where):
                return ",".join(self._text(name, member, where) or "" for member in node.value)
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

    @contextlib.contextmanager
    def _inside(self, node: yaml.CollectionNode, where: str) -> Iterator[None]:
        """What is named with & may stand in several places. It could have itself, which never ends, or others that have
        others, over and over, which takes for ever."""
        self._values += len(node.value)
        if node in self._around:
            raise ConfigError(f"{where}: what is named with & and used again here has itself as a part")
        if self._values > _MOST_VALUES:
            raise ConfigError(
                f"{where}: with what is named with & and used again, there are over {_MOST_VALUES} values"
            )
        self._around.add(node)
        yield
        self._around.remove(node)

    def _folded(self, node: yaml.Node) -> bool:
        if isinstance(node, self._yaml.SequenceNode):
            return any(map(self._folded, node.value))
        plain = isinstance(node, self._yaml.ScalarNode) and not node.style
        return plain and bool(node.start_mark.line != node.end_mark.line)

    def _where(self, node: yaml.Node) -> str:
        return f"{self._path}:{node.start_mark.line + 1}"
