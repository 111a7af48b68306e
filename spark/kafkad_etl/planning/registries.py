"""Asks schema registries for what a job reads and writes, before Spark starts. Nothing is registered here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.job import Format, Job, Registry, SinkRegistry
from kafkad_etl.messages import Schema
from kafkad_etl.model.effective import Effective
from kafkad_etl.registry import avro, protobuf
from kafkad_etl.registry.json_schema import JsonSchema
from kafkad_etl.registry.texts import KINDS, whole
from kafkad_etl.registry.unsupported import Unsupported

if TYPE_CHECKING:
    from kafkad_etl.registry.client import Registered, SchemaRegistry


class Registration(NamedTuple):
    """A schema that a run registers before Spark starts."""

    registry: SinkRegistry
    subject: str
    kind: str
    text: str


def asked(effective: Effective) -> Effective:
    """The job with the schemas that its registries have. EtlError says what they lack or refuse."""
    job, schemas = effective.job, effective.schemas
    if job.value.registry:
        value, writers = _read(job, job.value, job.value.registry, "value", schemas.value)
        schemas = schemas._replace(value=value, value_writers=writers)
    if job.key.registry:
        key, writers = _read(job, job.key, job.key.registry, "key", schemas.key)
        schemas = schemas._replace(key=key, key_writers=writers)
    topic = job.sink.topic
    if topic and topic.registry:
        sink, number = _written(job, topic.registry, schemas.sink)
        schemas = schemas._replace(sink=sink, sink_id=number)
    return effective._replace(schemas=schemas)


@contextmanager
def asking(registry: Registry, path: str) -> Iterator[SchemaRegistry]:
    """A client whose failures are EtlErrors CLUSTER at this block of the job file."""
    from kafkad_etl.registry.client import RegistryError, SchemaRegistry

    try:
        yield SchemaRegistry(registry)
    except RegistryError as error:
        raise EtlError(error.text, EtlExit.CLUSTER, key=f"{path}.url") from error


# --- reading


def _read(
    job: Job, block: Format, registry: Registry, part: str, declared: Schema | None
) -> tuple[Schema, dict[int, str]]:
    """The schema to read with, and the newest of those that records may have been written with."""
    path = f"{part}.registry"
    with asking(registry, path) as client:
        latest: Registered | None = None
        writers: dict[int, str] = {}
        for subject in _subjects(job, registry, part):
            versions = client.versions(subject)
            fetched = [client.version(subject, number) for number in versions[-_newest(block.format) :]]
            there = [found for found in fetched if found is not None]
            if there:
                latest = there[-1]
                _need_kind(latest, block.format, subject, path)
            writers |= _texts([found for found in there if found.kind == KINDS[block.format]], path)
            if not versions and declared is None:
                raise _no_subject(registry, subject, path, "subject: another one, or give `schema`")
        if declared is not None:
            return declared, writers
        assert latest is not None  # else a subject would be missing
        return _readable(latest, path, block.message), writers


def _newest(form: str) -> int:
    """How many versions of a subject are fetched in advance; older ones are, when a record names them."""
    return 1 if form == "protobuf" else 20  # protoc is a process for each


def _texts(found: Iterable[Registered], path: str) -> dict[int, str]:
    """The schemas' texts by their ids, without the unusable ones, whose records are bad rows."""
    texts = {}
    for each in found:
        try:
            texts[each.id] = whole(each)
        except protobuf.NoProtoc as error:
            raise _unusable("Protobuf", error, path) from error
        except Unsupported:
            continue
    return texts


def _unusable(form: str, error: Exception, path: str) -> EtlError:
    return EtlError(f"the subject's {form} schema cannot be used: {error}", EtlExit.USAGE, key=path)


def _subjects(job: Job, registry: Registry, part: str) -> list[str]:
    if registry.subject:
        return [registry.subject]
    return [f"{topic}-{part}" for topic in job.source.topics or sorted(job.source.partitions)]


def _readable(found: Registered, path: str, message: str) -> Schema:
    """The schema as one that columns can be read with."""
    if found.kind == "AVRO":
        return _record(found, path)
    if found.kind == "PROTOBUF":
        return _of_protobuf(found, path, message)
    try:
        return Schema("spark", json.dumps(JsonSchema(json.loads(found.text), found.references).columns()))
    except Unsupported as error:
        what = f"the subject's JSON Schema cannot be read as columns: {error}"
        raise EtlError(what, EtlExit.USAGE, key=path, hints=("give the columns as `schema`",)) from error


def _of_protobuf(found: Registered, path: str, message: str) -> Schema:
    try:
        compiled = protobuf.compiled(found.text, message, found.references)
        protobuf.columns(compiled)
    except (Unsupported, protobuf.NoProtoc) as error:
        raise _unusable("Protobuf", error, path) from error
    return Schema("protobuf", found.text, compiled.message, compiled.files)


def _record(found: Registered, path: str) -> Schema:
    try:
        text = whole(found)
        schema = json.loads(text)
    except (Unsupported, ValueError) as error:
        raise _unusable("Avro", error, path) from error
    if isinstance(schema, dict) and schema.get("type") == "record":
        return Schema("avro", text)
    raise EtlError("the subject's schema is not an Avro record, so it has no columns", EtlExit.USAGE, key=path)


# --- writing


def subject_of(job: Job, registry: SinkRegistry, schema: Schema | None) -> str:
    topic = job.sink.topic
    assert topic is not None
    if registry.subject:
        return registry.subject
    if registry.subject_naming == "topic" or schema is None:
        return f"{topic.topic}-value"
    record = _record_name(schema)
    return record if registry.subject_naming == "record" else f"{topic.topic}-{record}"


def _record_name(schema: Schema) -> str:
    """An Avro record's or Protobuf message's full name, or a JSON Schema's title."""
    if schema.kind == "protobuf":
        return schema.message
    document = json.loads(schema.text)
    name = avro.full_name(document) if schema.kind == "avro" else str(document.get("title") or "")
    if not name:
        what = "the JSON Schema has no `title`, and subject_naming needs one"
        raise EtlError(what, EtlExit.USAGE, key="sink.topic.schema")
    return name


def _written(job: Job, registry: SinkRegistry, schema: Schema | None) -> tuple[Schema, int | None]:
    """The schema to write and its id; None if the run has to register it first."""
    topic, path = job.sink.topic, "sink.topic.registry"
    assert topic is not None
    subject, kind = subject_of(job, registry, schema), KINDS[topic.format]
    with asking(registry, path) as client:
        if schema is None:
            latest = client.latest(subject)
            if latest is None:
                hint = "sink.topic.schema: {file: …} and registry.auto_register: true register one"
                raise _no_subject(registry, subject, path, hint)
            _need_kind(latest, topic.format, subject, path)
            return _writable(latest, path, topic.message), latest.id
        found = client.find(subject, kind, schema.text)
        if found is not None:
            return schema, found.id
        if not registry.auto_register:
            raise EtlError(
                f"subject {subject} in {registry.url} does not have the schema of sink.topic.schema",
                EtlExit.CLUSTER,
                key=path,
                hints=("auto_register: true registers it, or remove `schema` to write the subject's latest",),
            )
        if schema.kind == "protobuf" and (others := protobuf.imports(schema.files)):
            what = f"the schema imports {others[0]}, and registering a schema that refers to others is not supported"
            raise EtlError(what, EtlExit.USAGE, key="sink.topic.schema", hints=("register both by other means",))
        if reasons := client.incompatibilities(subject, kind, schema.text):
            raise incompatible(subject, registry, reasons)
        return schema, None


def _writable(found: Registered, path: str, message: str) -> Schema:
    if found.kind == "AVRO":
        return _record(found, path)
    if found.kind == "PROTOBUF":
        return _of_protobuf(found, path, message)
    if found.references:
        what = "the subject's JSON Schema refers to other subjects, which is not supported for writing"
        raise EtlError(what, EtlExit.USAGE, key=path, hints=("give the whole schema as sink.topic.schema",))
    return Schema("json-schema", found.text)


def registration(job: Job, schema: Schema | None, number: int | None) -> Registration | None:
    """What a run has to register before it writes."""
    topic = job.sink.topic
    if topic is None or topic.registry is None or schema is None or number is not None:
        return None
    return Registration(topic.registry, subject_of(job, topic.registry, schema), KINDS[topic.format], schema.text)


def registered(asked_for: Registration) -> int:
    """Registers the schema. Returns its id."""
    from kafkad_etl.registry.client import Incompatible

    with asking(asked_for.registry, "sink.topic.registry") as client:
        try:
            return client.register(asked_for.subject, asked_for.kind, asked_for.text)
        except Incompatible as error:
            raise incompatible(asked_for.subject, asked_for.registry, [error.text]) from error


def incompatible(subject: str, registry: Registry, reasons: list[str]) -> EtlError:
    return EtlError(
        f"the schema is not compatible with what subject {subject} in {registry.url} has: {reasons[0]}",
        EtlExit.USAGE,
        key="sink.topic.schema",
        hints=(*reasons[1:], "change the schema as the subject's compatibility level allows, or write another subject"),
    )


def _need_kind(found: Registered, form: str, subject: str, path: str) -> None:
    if found.kind != KINDS[form]:
        what = f"subject {subject} has schemas of type {found.kind}, and the format here is {form}"
        known = next((name for name, kind in KINDS.items() if kind == found.kind), "")
        hints = (f"format: {known}",) if known else ()
        raise EtlError(what, EtlExit.USAGE, key=path, hints=hints)


def _no_subject(registry: Registry, subject: str, path: str, hint: str) -> EtlError:
    return EtlError(f"{registry.url} has no subject {subject}", EtlExit.CLUSTER, key=path, hints=(hint,))
