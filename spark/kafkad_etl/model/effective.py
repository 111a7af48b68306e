"""The effective job: with its SQL files and schemas read in."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.facts import local_path
from kafkad_etl.job import Format, Job, Registry, Step, TopicSink, Transform
from kafkad_etl.messages import Schema
from kafkad_etl.model import schemas
from kafkad_etl.model.document import below
from kafkad_etl.model.loading import Loaded, unknown_variable
from kafkad_etl.model.schemas import Schemas
from kafkad_etl.model.variables import Unfilled
from kafkad_etl.registry import protobuf

AnyRegistry = TypeVar("AnyRegistry", bound=Registry)


class Effective(NamedTuple):
    job: Job
    """The job without any `file` of SQL, and with absolute paths to the certificates of registries."""
    schemas: Schemas
    secrets: frozenset[str]
    """Secrets of the job file and its SQL files."""
    secret_variables: frozenset[str] = frozenset()
    """Variables of the environment that they are from."""
    files: tuple[tuple[str, str], ...] = ()
    """The job file, and every file of this machine that it names, whatever for, or that those import, each with its
    key."""


def effective(loaded: Loaded) -> Effective:
    """Reads the files, which are relative to the job file."""
    job = loaded.job
    reading = _Reading(loaded)
    transform = reading.transform(job.transform)
    for name in () if loaded.file.is_one_of_several else loaded.variables.unused():
        raise EtlError(unknown_variable(name), EtlExit.USAGE, where=loaded.where(""))
    topic = job.sink.topic
    found = Schemas(
        reading.schema(job.value, job.value.format, "value.schema"),
        reading.schema(job.key, job.key.format, "key.schema"),
        reading.schema(topic, _written_form(topic), "sink.topic.schema") if topic is not None else None,
    )
    return Effective(
        reading.certificates(replace(job, transform=transform)),
        found,
        frozenset(reading.secrets),
        frozenset(loaded.variables.secret_variables),
        (("the job file", str(loaded.path)), *_files_named(loaded), *reading.imported),
    )


def _written_form(topic: TopicSink) -> str:
    return "json-schema" if topic.format == "json" and topic.registry else topic.format


_NO_PATHS = ("description", "sql", "vars", "sink.path")
"""Keys of texts that name no file; what a variable is used for has a key of its own."""


def _files_named(loaded: Loaded) -> Iterator[tuple[str, str]]:
    """Files that are there under a name that a key has: relative to the job file or to the working directory, as the
    key has it; alone, in a list as Java has it, or in a URL."""
    for key, text in _texts(msgspec.to_builtins(loaded.job)):
        for name in dict.fromkeys((text, *(part.strip() for part in re.split(r"[,:;?]", text)))):
            for directory in (loaded.path.parent, Path()):
                path = directory / local_path(name)
                if os.path.isfile(path):
                    yield key, str(path)


def _texts(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """The texts of a document that may name files, each with its key."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict | list | tuple):
        for name, child in value.items() if isinstance(value, dict) else enumerate(value):
            key = below(path, str(name))
            if name not in _NO_PATHS and key not in _NO_PATHS:
                yield from _texts(child, key)


class _Reading:
    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        self._beside = loaded.path.parent
        self.secrets = set(loaded.secrets)
        self.imported: list[tuple[str, str]] = []
        """Files that schemas import, each with the key of the schema."""

    def transform(self, transform: Transform) -> Transform:
        steps = tuple(self._step(step, f"transform.steps.{index}") for index, step in enumerate(transform.steps))
        if not transform.file:
            return replace(transform, steps=steps)
        return replace(transform, steps=steps, sql=self._sql(transform.file, "transform.file"), file="")

    def _step(self, step: Step, path: str) -> Step:
        return replace(step, sql=self._sql(step.file, f"{path}.file"), file="") if step.file else step

    def _sql(self, name: str, path: str) -> str:
        file = self._beside / local_path(name)
        where = self._loaded.where(path)
        try:
            filled = self._loaded.variables.fill(schemas.read(file, where))
        except Unfilled as error:
            raise EtlError(f"{file}: {error.text}", EtlExit.USAGE, hints=error.hints, where=where) from error
        self.secrets |= filled.secrets
        return filled.text

    def certificates(self, job: Job) -> Job:
        value, key, topic = job.value, job.key, job.sink.topic
        if value.registry:
            job = replace(job, value=replace(value, registry=self._absolute(value.registry)))
        if key.registry:
            job = replace(job, key=replace(key, registry=self._absolute(key.registry)))
        if topic and topic.registry:
            job = replace(job, sink=replace(job.sink, topic=replace(topic, registry=self._absolute(topic.registry))))
        return job

    def _absolute(self, registry: AnyRegistry) -> AnyRegistry:
        files = {name: getattr(registry, name) for name in ("ca", "cert", "key")}
        beside = self._beside.absolute()
        return replace(registry, **{name: str(beside / local_path(file)) for name, file in files.items() if file})

    def schema(self, block: Format | TopicSink, form: str, path: str) -> Schema | None:
        given = block.schema
        if given is None:
            return None
        if isinstance(given, str):
            beside = self._beside
            found = schemas.inline(given, form, self._loaded.where(path), block.message, beside)
        else:
            file, path = self._beside / local_path(given.file), f"{path}.file"
            beside = file.parent
            found = schemas.from_file(file, form, self._loaded.where(path), block.message)
        if found.kind == "protobuf":
            self.imported += ((path, str(beside / name)) for name in protobuf.every_import(found.files))
        return found
