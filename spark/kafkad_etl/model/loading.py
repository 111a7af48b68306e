"""Loads a job file: parses its text into a Job, or into all of its mistakes at once, each with its line.

file → tree of nodes → --set → variables → types (`checking`) → rules over several keys (`rules`) → Job
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import msgspec
from msgspec.structs import replace
from yaml.nodes import MappingNode, Node, ScalarNode

from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.facts import HOSTS, has_s3_paths, is_s3_key
from kafkad_etl.job import Job, Mode, Source, StopAfter
from kafkad_etl.model import checking, rules
from kafkad_etl.model.document import (
    STRING,
    Mistake,
    Place,
    Unreadable,
    below,
    children,
    compose,
    places,
    put,
    tag_of,
    wrong_keys,
)
from kafkad_etl.model.variables import Unfilled, Variables
from kctl.errors import KctlError
from kctl.texts.text_files import opened

_SECRET_KEY = re.compile(
    r"(?:(?:password|token|credential|secret|secret[.-](?:access-)?key|keystore\.key|sasl\.jaas\.config"
    r"|authorization|api[._-]?key)"
    r"|(?:account[.-]key|client[.-]secret|sas[.-]token)(?:\.[\w.-]+)?)$",
    re.IGNORECASE,
)
"""Ends of the keys whose values are always secret, among them options of Spark, Kafka, catalogs and databases. Azure's
may end with an account."""
_URLS = ("jdbc:", "http:", "https:")
_PASSWORD_IN_URL = re.compile(
    r"[?&;]\w*password=(?P<parameter>[^&;]+)|[(,]\w*password=(?P<beside_host>[^),]+)"
    rf"|//[^\s/?;:@]*:(?P<userinfo>[^\s/?;]+)@|//(?!{HOSTS})[^\s/?;:@]*:(?P<with_slash>[^\s?;]+)@"
    r"|^jdbc:oracle:\w+:[^\s/?;@]*/(?P<oracle>[^\s?;]+)@",
    re.IGNORECASE,
)


class JobFile(NamedTuple):
    """A job file as named on the command line; `sets` and `mode` override the file's contents."""

    path: Path
    variables: Mapping[str, str] = {}
    sets: Sequence[str] = ()
    mode: Mode | None = None
    is_one_of_several: bool = False
    """True if some of `variables` may be meant for other files."""


class Loaded(NamedTuple):
    job: Job
    file: JobFile
    tree_lines: Mapping[str, Place]
    variables: Variables
    secrets: frozenset[str]
    """Texts that must never be shown: see `masked`."""

    @property
    def path(self) -> Path:
        return self.file.path

    def where(self, path: str) -> str:
        """The place of a key, such as orders.yaml:14 sink.path; for a key not in the file, the line of its block."""
        return _where(self.path, self.tree_lines, path)

    def within(self, path: str, line: int, column: int = 0) -> str:
        """The place of line `line` (from 1) of the text at `path`: orders.yaml:31:9 transform.sql."""
        place = self.tree_lines.get(path)
        if place is not None and not place.line:
            return f"{self.where(path)}{f':{line}:{column}' if column else ''}"
        if place is None or (line > 1 and not place.block):
            return self.where(path)
        column = column and column + place.text_column - 1
        return f"{self.path}:{place.text_line + line - 1}{f':{column}' if column else ''} {path}"

    @contextmanager
    def locating_errors(self) -> Iterator[None]:
        """Adds the place in the file to errors that name a key."""
        try:
            yield
        except EtlError as error:
            error.locate(self.where)
            raise


class JobError(EtlError):
    """All mistakes in one job file; `mistakes` has a line for each."""

    def __init__(self, path: Path, mistakes: Sequence[str]) -> None:
        if len(mistakes) == 1:
            super().__init__(mistakes[0], EtlExit.USAGE)
        else:
            super().__init__(f"{path} has {len(mistakes)} mistakes", EtlExit.USAGE, hints=mistakes)
        self.mistakes = tuple(mistakes)


def load(file: JobFile, environment: Mapping[str, str] = os.environ) -> Loaded:
    """Loads the file. Raises EtlError USAGE with all mistakes."""
    return parse(read(file.path, may_be_pipe=True), file, environment)


def name_in(path: Path) -> str:
    """The job's name, from a file that may have mistakes elsewhere. Raises EtlError USAGE."""
    try:
        root = compose(read(path))
    except Unreadable as error:
        raise JobError(path, [f"{path}:{error.line}: {error.text}"]) from error
    for key, value in root.value if isinstance(root, MappingNode) else ():
        if key.value == "name" and isinstance(value, ScalarNode) and "${" not in value.value:
            return str(value.value)
    raise EtlError(f"{path} does not say the job's name", EtlExit.USAGE, hints=("give the name instead of the file",))


def read(path: Path, where: str = "", *, may_be_pipe: bool = False) -> str:
    """The text of a job file, or of one that it names at `where`. Raises EtlError USAGE. It `may_be_pipe` that a shell
    opens where it is named on the command line, and by any name."""
    try:
        with opened(str(path)) as stream, TextIOWrapper(stream, "utf-8") as text:
            return text.read()
    except OSError as error:
        raise EtlError(f"cannot read {path}: {error.strerror}", EtlExit.USAGE, where=where) from error
    except UnicodeDecodeError as error:
        raise EtlError(f"{path} is not valid UTF-8: byte {error.start}", EtlExit.USAGE, where=where) from error
    except KctlError as error:
        hints = error.hints if may_be_pipe else ()
        raise EtlError(error.what, EtlExit.USAGE, hints=hints, where=where) from None


def parse(text: str, file: JobFile, environment: Mapping[str, str]) -> Loaded:
    path = file.path
    try:
        root = compose(text)
    except Unreadable as error:
        raise JobError(path, [f"{path}:{error.line}: {error.text}"]) from error
    if not isinstance(root, MappingNode):
        raise JobError(path, [f"{path}:1: this is not a job file: it has no keys; kctl etl init writes one"])
    return _Loading(path, root, dict(places(root, text.splitlines()))).job(file, environment)


class _Loading:
    def __init__(self, path: Path, root: MappingNode, lines: dict[str, Place]) -> None:
        self.path = path
        self.root = root
        self.lines = lines
        self.mistakes: list[Mistake] = list(wrong_keys(root))
        self.secrets: set[str] = set()

    def job(self, file: JobFile, environment: Mapping[str, str]) -> Loaded:
        for setting in file.sets:
            self._set(setting)
        variables = Variables(dict(_declared(self.root)), file.variables, environment)
        self._fill(self.root, "", variables)
        self.secrets.update(_passwords(self.root))
        values, found = checking.check(self.root, _kind())
        told = {mistake.path for mistake in self.mistakes}
        self.mistakes += (mistake for mistake in found if mistake.path not in told)
        job = _converted(values, bool(self.mistakes))
        if (job is None or not sql_files(job)) and not file.is_one_of_several:
            self.mistakes += (Mistake("", unknown_variable(name)) for name in variables.unused())
        if job is not None:
            job = in_mode(job, file.mode or job.run.mode)
            self.mistakes += _not_caused_by(self.mistakes, rules.mistakes(job))
            self.mistakes += self._written_keys(job)
            if has_s3_paths(job):
                self.secrets |= {environment[name] for name in _S3_SECRETS if environment.get(name)}
        if self.mistakes or job is None:
            self._refuse()
        return Loaded(job, file, self.lines, variables, frozenset(self.secrets))

    def _set(self, setting: str) -> None:
        path, equals, text = setting.partition("=")
        if not equals or not path:
            raise EtlError(f'--set "{setting}" is not of the form key=value', EtlExit.USAGE, hints=("sink.path=/data",))
        try:
            value = compose(text) or ScalarNode(STRING, "", self.root.start_mark)
        except Unreadable as error:
            raise EtlError(f"--set {path}: {error.text}", EtlExit.USAGE) from error
        mistake = put(self.root, path, value)
        if mistake is not None:
            self.mistakes.append(mistake)
        for below_it in [known for known in self.lines if known == path or known.startswith(path + ".")]:
            del self.lines[below_it]
        self.lines[path] = Place(0)

    def _fill(self, node: Node, path: str, variables: Variables) -> None:
        for name, child in children(node):
            inside = below(path, name)
            if not isinstance(child, ScalarNode):
                self._fill(child, inside, variables)
            elif "${" in child.value:
                self._fill_scalar(child, inside, variables)

    def _fill_scalar(self, node: ScalarNode, path: str, variables: Variables) -> None:
        try:
            filled = variables.fill(node.value)
        except Unfilled as error:
            self.mistakes.append(Mistake(path, error.text, tuple(error.hints)))
            return
        self.secrets |= filled.secrets
        node.value = filled.text
        node.tag = tag_of(filled.text) if filled.text else STRING

    def _written_keys(self, job: Job) -> Iterable[Mistake]:
        """Keys of an object store that are in the file itself."""
        for name, value in job.spark.conf.items():
            if is_s3_key(name) and not any(secret in str(value) for secret in self.secrets):
                hints = ("leave it out and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", "or write ${env:NAME}")
                yield Mistake(f"spark.conf.{name}", "a key of an object store does not belong into a file", hints)

    def _refuse(self) -> NoReturn:
        lines = mistake_lines(self.path, self.lines, self.mistakes)
        raise JobError(self.path, [masked(line, self.secrets) for line in lines])


_S3_SECRETS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
"""Variables of the environment, from which Spark takes the keys of object stores itself."""


def unknown_variable(name: str) -> str:
    return f'--var {name}: the file declares no variable "{name}"'


def sql_files(job: Job) -> list[str]:
    """Keys that name SQL files, which may use variables too."""
    steps = (f"transform.steps.{index}.file" for index, step in enumerate(job.transform.steps) if step.file)
    return [*(["transform.file"] if job.transform.file else ()), *steps]


@cache
def _kind() -> msgspec.inspect.Type:
    return msgspec.inspect.type_info(Job)


def in_mode(job: Job, mode: Mode) -> Job:
    """The job in another mode than the file's, without settings that only apply to the file's own mode."""
    if mode == job.run.mode:
        return job
    run = replace(job.run, mode=mode, every=job.run.every if mode == "continuous" else "0s")
    if mode == "batch":
        return replace(job, run=replace(run, output="append", stop_after=StopAfter()))
    source = replace(job.source, end=Source().end)
    return replace(job, source=source, run=replace(run, stop_after=replace(run.stop_after, idle=StopAfter().idle)))


def _declared(root: MappingNode) -> Iterable[tuple[str, str]]:
    block = next((child for name, child in children(root) if name == "vars"), root)
    if isinstance(block, MappingNode) and block is not root:
        yield from ((name, child.value) for name, child in children(block) if isinstance(child, ScalarNode))


def _passwords(node: Node) -> Iterable[str]:
    for name, child in children(node):
        if not isinstance(child, ScalarNode):
            yield from _passwords(child)
        elif _SECRET_KEY.search(name) and not is_s3_key(name) and child.value:
            yield child.value
        elif child.value.lower().startswith(_URLS):
            yield from (found[found.lastgroup or 0] for found in _PASSWORD_IN_URL.finditer(child.value))


def _converted(values: Any, has_mistakes: bool) -> Job | None:
    try:
        return msgspec.convert(values, Job)
    except msgspec.ValidationError:
        if not has_mistakes:
            raise
        return None  # what is missing was told


def _not_caused_by(mistakes: Sequence[Mistake], later: Iterable[Mistake]) -> list[Mistake]:
    """Mistakes that are not mere consequences of others: a rule over a block with an invalid value would repeat its
    mistake."""
    blocks = {mistake.path.rpartition(".")[0] for mistake in mistakes}
    return [
        mistake
        for mistake in later
        if not any(
            f"{block}.".startswith(f"{mistake.path}.") or mistake.path.startswith(f"{block}.") for block in blocks
        )
    ]


def _line(lines: Mapping[str, Place], path: str) -> int:
    while path and path not in lines:
        path = path.rpartition(".")[0]
    return lines[path].line if path else 1


def _where(file: Path, lines: Mapping[str, Place], path: str) -> str:
    line = _line(lines, path)
    return f"{file}:{line} {path}".rstrip() if line else f"--set {path}"


def mistake_lines(file: Path, lines: Mapping[str, Place], mistakes: Iterable[Mistake]) -> list[str]:
    """A line of text for each mistake, in the order of the file."""
    ordered = sorted(dict.fromkeys(mistakes), key=lambda mistake: _line(lines, mistake.path))
    return [_mistake_line(file, lines, mistake) for mistake in ordered]


def _mistake_line(file: Path, lines: Mapping[str, Place], mistake: Mistake) -> str:
    return "; ".join((f"{_where(file, lines, mistake.path)}: {mistake.text}", *mistake.hints))


MASK = "****"


def masked(text: str, secrets: Iterable[str]) -> str:
    """The text without secrets, including their JSON-escaped form. The longest go first, since one may contain
    another."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, MASK).replace(json.dumps(secret)[1:-1], MASK)
    return text
