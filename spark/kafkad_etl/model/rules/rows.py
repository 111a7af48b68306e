"""Rules for `key`, `value` and `transform`."""

from __future__ import annotations

from collections.abc import Iterator

from kafkad_etl.facts import duration_ms
from kafkad_etl.job import BadRows, Files, Format, Job, Lookup, Transform
from kafkad_etl.model.document import Mistake
from kafkad_etl.model.rules import registries
from kafkad_etl.model.rules.sources import reads, topic_name

_VIEWS = ("source", "out")


def mistakes(job: Job) -> Iterator[Mistake]:
    if job.source.files is None:
        yield from _format(job, job.value, "value")
        yield from _format(job, job.key, "key")
    else:
        yield from _of_files(job, job.source.files)
    yield from _bad_rows(job, job.value.bad_rows)
    if job.key.bad_rows != BadRows():
        yield Mistake("key.bad_rows", "a record is bad as a whole", ("use `value.bad_rows`",))
    yield from _transform(job.transform)
    yield from _times(job.transform)
    for name, lookup in job.transform.lookups.items():
        yield from _lookup(name, lookup)


def duration(text: str, path: str) -> Iterator[Mistake]:
    try:
        duration_ms(text)
    except ValueError:
        yield Mistake(path, f'"{text}" is not a duration', ("use a form such as 30s, 10 minutes or 1h30m",))


def _format(job: Job, form: Format, path: str) -> Iterator[Mistake]:
    if form.format in ("json", "csv") and form.schema is None and form.registry is None:
        yield Mistake(path, f"{form.format} needs a `schema`", ('schema: "id BIGINT, name STRING", or {file: …}',))
    if form.format in ("avro", "protobuf") and form.schema is None and form.registry is None:
        hint = "registry: {url: …}, or schema: {file: …}"
        yield Mistake(path, f"{form.format} needs a `schema` or a `registry`", (hint,))
    if form.message and form.format != "protobuf":
        yield Mistake(f"{path}.message", f"applies only to protobuf, not to {form.format}")
    if form.format in ("text", "raw") and form.schema is not None:
        yield Mistake(f"{path}.schema", f"{form.format} has one column and takes no schema")
    if form.registry is not None and form.format not in registries.FORMATS:
        yield Mistake(f"{path}.registry", f"only avro, protobuf and json use a registry, not {form.format}")
    elif form.registry is not None:
        yield from registries.mistakes(form.registry, f"{path}.registry")
        yield from registries.subject_mistakes(job, form, path)
    if form.mode != "strict" and form.format != "json":
        yield Mistake(f"{path}.mode", f"mode applies only to json, not to {form.format}")
    if form.csv != Format(format="csv").csv and form.format != "csv":
        yield Mistake(f"{path}.csv", f"applies only to csv; the format is {form.format}")
    if form.csv.header:
        yield Mistake(f"{path}.csv.header", "a record is a single line without a header", ("remove it",))


def _of_files(job: Job, files: Files) -> Iterator[Mistake]:
    """Rules for files, which already have columns; only `bad_rows` applies to them."""
    plain = Format(format=job.value.format, bad_rows=job.value.bad_rows)
    if job.value != plain or job.value.format not in ("raw", files.format) or job.key != Format(format="text"):
        hints = ("`source.files` describes them; under `value`, only bad_rows applies",)
        yield Mistake("value" if job.key == Format(format="text") else "key", "files already have columns", hints)


def _bad_rows(job: Job, bad: BadRows) -> Iterator[Mistake]:
    path = "value.bad_rows"
    if bad.action == "dead_letter" and not bad.topic:
        yield Mistake(path, "dead_letter needs a `topic`")
    if bad.topic and bad.action != "dead_letter":
        yield Mistake(f"{path}.topic", f"action {bad.action} uses no topic", ("use action: dead_letter",))
    if bad.action == "fail" and (bad.max is not None or bad.max_ratio is not None):
        yield Mistake(
            path, "action fail stops at the first bad row", ("`max` and `max_ratio` apply to the other actions",)
        )
    if bad.topic:
        yield from topic_name(bad.topic, f"{path}.topic")
        if reads(job.source, bad.topic):
            yield Mistake(
                f"{path}.topic", f"{bad.topic} is read by this job: its bad rows would be read again without end"
            )
        if job.sink.topic is not None and bad.topic == job.sink.topic.topic and job.sink.topic.kafka is None:
            yield Mistake(f"{path}.topic", f"{bad.topic} is also the topic for good rows")


def _transform(transform: Transform) -> Iterator[Mistake]:
    given = [name for name in ("sql", "file", "steps") if getattr(transform, name)]
    if len(given) > 1:
        yield Mistake("transform", f"has {' and '.join(given)}", ("give only one of sql, file and steps",))
    taken = {*_VIEWS, *(name.lower() for name in transform.lookups)}
    for index, step in enumerate(transform.steps):
        path = f"transform.steps.{index}"
        if bool(step.sql) == bool(step.file):
            yield Mistake(path, "a step needs either `sql` or `file`")
        if step.name.lower() in taken:
            yield Mistake(f"{path}.name", f'a view "{step.name}" already exists', ("choose another name",))
        taken.add(step.name.lower())


def _times(transform: Transform) -> Iterator[Mistake]:
    if transform.watermark is not None:
        yield from duration(transform.watermark.delay, "transform.watermark.delay")
    deduplicate = transform.deduplicate
    if deduplicate is not None and deduplicate.within:
        yield from duration(deduplicate.within, "transform.deduplicate.within")
        if transform.watermark is None:
            hint = "transform.watermark: {column: …, delay: 10 minutes}"
            yield Mistake(
                "transform.deduplicate.within", "needs a watermark; without one, rows would be kept forever", (hint,)
            )


def _lookup(name: str, lookup: Lookup) -> Iterator[Mistake]:
    path = f"transform.lookups.{name}"
    if name.lower() in _VIEWS:
        yield Mistake(path, f'a view "{name}" already exists', ("choose another name",))
    if not name.isidentifier():
        yield Mistake(path, f'"{name}" is not a valid view name', ("use letters, digits and `_`",))
    if lookup.format == "jdbc":
        if lookup.path:
            yield Mistake(f"{path}.path", "jdbc has no path", ("options: {url: …, dbtable: …}",))
        for option in ("url", "dbtable"):
            if option not in lookup.options and not (option == "dbtable" and "query" in lookup.options):
                yield Mistake(path, f"jdbc needs the option `{option}`", ("options: {url: …, dbtable: …}",))
        return
    if not lookup.path:
        yield Mistake(path, f"{lookup.format} needs a `path`")
    if lookup.format != "parquet" and not lookup.schema:
        yield Mistake(path, f"{lookup.format} needs a `schema`", ('schema: "id BIGINT, name STRING"',))
