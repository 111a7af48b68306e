"""Rules for `kafka` and client options."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from kafkad_etl.job import Job, Kafka, Scalar, Security
from kafkad_etl.model import client_settings
from kafkad_etl.model.document import Mistake
from kctl.errors import did_you_mean

_CHECKPOINT = "the checkpoint, not a group, decides what is read next"
_BYTES = "`key` and `value` define how bytes are decoded and encoded"
_REFUSED = {
    "group.id": f"{_CHECKPOINT}; `run.group` names the group that shows the progress",
    "group.instance.id": _CHECKPOINT,
    "enable.auto.commit": _CHECKPOINT,
    "auto.commit.interval.ms": _CHECKPOINT,
    "auto.offset.reset": "use `source.start`",
    "key.deserializer": _BYTES,
    "value.deserializer": _BYTES,
    "key.serializer": _BYTES,
    "value.serializer": _BYTES,
    "interceptor.classes": "Spark does not allow it",
    "bootstrap.servers": "use `bootstrap`",
    "isolation.level": "use `source.isolation`",
    "max.poll.records": "use `source.poll_records`",
    "acks": "use `sink.topic.acks`",
    "transactional.id": "use `sink.topic.delivery`",
    "security.protocol": "use `security.protocol`",
    "sasl.mechanism": "use `security.mechanism`",
    "sasl.jaas.config": "use `security.username` and `security.password`",
}


def mistakes(job: Job) -> Iterator[Mistake]:
    yield from _kafka(job.kafka, "kafka")
    sink = job.sink.topic
    if sink is not None:
        yield from options(sink.options, "sink.topic.options")
        if sink.kafka is not None:
            yield from _kafka(sink.kafka, "sink.topic.kafka")


def options(given: Mapping[str, Scalar], path: str) -> Iterator[Mistake]:
    for name, value in given.items():
        if name in _REFUSED:
            yield Mistake(f"{path}.{name}", "cannot be set here", (_REFUSED[name],))
        elif name.startswith("kafka."):
            yield Mistake(f"{path}.{name}", "must not have Spark's prefix here", (f"write {name[6:]}",))
        elif wrong := client_settings.fault(client_settings.CLIENT.get(name), value):
            yield Mistake(f"{path}.{name}", wrong)


def unknown(job: Job) -> Iterator[Mistake]:
    """Settings that Kafka's clients do not have and ignore, unless a plugin of theirs takes them."""
    yield from _unknown(job.kafka.options, "kafka.options", client_settings.CLIENT)
    sink = job.sink.topic
    if sink is not None:
        yield from _unknown(sink.options, "sink.topic.options", client_settings.PRODUCER)
        if sink.kafka is not None:
            yield from _unknown(sink.kafka.options, "sink.topic.kafka.options", client_settings.CLIENT)


def _unknown(given: Mapping[str, Scalar], path: str, known: Collection[str]) -> Iterator[Mistake]:
    who = "producer" if known is client_settings.PRODUCER else "clients"
    for name in given:
        if name not in known:
            text = f"Kafka's {who} will ignore it: there is no such setting"
            yield Mistake(f"{path}.{name}", text, did_you_mean(name, tuple(known)))


def _kafka(kafka: Kafka, path: str) -> Iterator[Mistake]:
    yield from options(kafka.options, f"{path}.options")
    if kafka.cluster and kafka.bootstrap:
        yield Mistake(f"{path}.bootstrap", "give either `cluster` or `bootstrap`, not both")
    if kafka.security is not None:
        if not kafka.bootstrap:
            yield Mistake(
                f"{path}.security", "only with `bootstrap`", ("a context has its own security settings: kctl contexts",)
            )
        yield from _security(kafka.security, f"{path}.security")
    for index, address in enumerate(kafka.bootstrap):
        if not is_address(address):
            yield Mistake(f"{path}.bootstrap.{index}", f'"{address}" is not host:port')


def _security(security: Security, path: str) -> Iterator[Mistake]:
    login = {"mechanism": security.mechanism, "username": security.username, "password": security.password}
    if security.protocol.startswith("SASL"):
        for name in [name for name, value in login.items() if not value]:
            yield Mistake(path, f"{security.protocol} needs `{name}`")
    else:
        for name in [name for name, value in login.items() if value]:
            yield Mistake(f"{path}.{name}", f"{security.protocol} has no login", ("use protocol: SASL_SSL",))
    files = {"ca": security.ca, "cert": security.cert, "key": security.key}
    if not security.protocol.endswith("SSL"):
        for name in [name for name, value in files.items() if value]:
            yield Mistake(f"{path}.{name}", f"{security.protocol} has no TLS", ("use protocol: SSL or SASL_SSL",))
    elif bool(security.cert) != bool(security.key):
        yield Mistake(path, "give both `cert` and `key`, or neither")


def is_address(text: str) -> bool:
    host, colon, port = text.rpartition(":")
    return bool(host and colon) and port.isdecimal() and 0 < int(port) < 65536
