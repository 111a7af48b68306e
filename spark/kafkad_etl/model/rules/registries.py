"""Rules for schema registries."""

from __future__ import annotations

from collections.abc import Iterator

from kafkad_etl.job import Format, Job, Registry, SinkRegistry, TopicSink
from kafkad_etl.model.document import Mistake

FORMATS = ("avro", "protobuf", "json")
"""Formats of records whose schema may be in a registry."""


def mistakes(registry: Registry, path: str) -> Iterator[Mistake]:
    """Mistakes in how the registry is reached."""
    scheme, found, _ = registry.url.partition("://")
    if not found or scheme not in ("http", "https"):
        yield Mistake(f"{path}.url", f'"{registry.url}" is not the URL of a registry', ("https://host:8081",))
    if registry.token and registry.username:
        yield Mistake(f"{path}.token", "give either a token or a user, not both")
    if registry.password and not registry.username:
        yield Mistake(path, "a password needs a `username`")
    if bool(registry.cert) != bool(registry.key):
        yield Mistake(path, "give both `cert` and `key`, or neither")
    for name in ("ca", "cert", "key"):
        if scheme == "http" and getattr(registry, name):
            yield Mistake(f"{path}.{name}", "http has no TLS", ("url: https://…",))


def subject_mistakes(job: Job, form: Format, path: str) -> Iterator[Mistake]:
    """Mistakes in what says which schema the columns are of."""
    if form.registry is None or form.registry.subject or form.schema is not None:
        return
    source = job.source
    if source.pattern or len(source.topics or source.partitions) > 1:
        what = "a pattern may match several topics" if source.pattern else "several topics have several subjects"
        hint = "registry.subject: the subject whose latest schema defines the columns"
        yield Mistake(f"{path}.registry", f"{what}; which schema do the columns follow?", (hint, "or give `schema`"))


def sink_mistakes(sink: TopicSink, registry: SinkRegistry) -> Iterator[Mistake]:
    path = "sink.topic.registry"
    if sink.format not in FORMATS:
        yield Mistake(path, f"only avro, protobuf and json use a registry, not {sink.format}")
        return
    yield from mistakes(registry, path)
    if registry.auto_register and sink.schema is None:
        yield Mistake(f"{path}.auto_register", "needs a schema to register", ("sink.topic.schema: {file: …}",))
    if registry.subject_naming != "topic" and registry.subject:
        yield Mistake(f"{path}.subject_naming", "the subject is given", ("remove one of the two",))
    elif registry.subject_naming != "topic" and sink.schema is None:
        hint = "sink.topic.schema: {file: …}, or registry.subject"
        yield Mistake(f"{path}.subject_naming", "needs a schema with the name of a record", (hint,))
