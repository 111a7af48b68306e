"""The settings of Kafka's own producer and consumer, of the release that Spark uses (3.9), and the values they take."""

from __future__ import annotations

import re
from typing import NamedTuple, TypeAlias

from kafkad_etl.job import Scalar


class Whole(NamedTuple):
    """A whole number in this range."""

    least: int
    most: int


Taken: TypeAlias = Whole | tuple[str, ...] | type[bool] | None
"""What a setting takes: a number, one of these words, true or false; None: any text, as far as is known here."""

_INT, _LONG = 2**31 - 1, 2**63 - 1

_BOTH: dict[str, Taken] = {
    **dict.fromkeys(("auto.include.jmx.reporter", "enable.metrics.push", "sasl.oauthbearer.header.urlencode"), bool),
    "metrics.recording.level": ("INFO", "DEBUG", "TRACE"),
    "client.dns.lookup": ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    **dict.fromkeys(("receive.buffer.bytes", "send.buffer.bytes"), Whole(-1, _INT)),
    **dict.fromkeys(
        (
            *("sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms"),
            "sasl.oauthbearer.clock.skew.seconds",
        ),
        Whole(-_INT - 1, _INT),
    ),
    **dict.fromkeys(
        (
            *("connections.max.idle.ms", "sasl.kerberos.min.time.before.relogin"),
            *("sasl.login.retry.backoff.max.ms", "sasl.login.retry.backoff.ms"),
            *("sasl.oauthbearer.jwks.endpoint.refresh.ms", "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
            *("socket.connection.setup.timeout.max.ms", "socket.connection.setup.timeout.ms"),
        ),
        Whole(-_LONG - 1, _LONG),
    ),
    "sasl.login.refresh.buffer.seconds": Whole(0, 3600),
    "sasl.login.refresh.min.period.seconds": Whole(0, 900),
    "request.timeout.ms": Whole(0, _INT),
    "metrics.num.samples": Whole(1, _INT),
    **dict.fromkeys(
        (
            *("metadata.max.age.ms", "metrics.sample.window.ms", "reconnect.backoff.max.ms", "reconnect.backoff.ms"),
            *("retry.backoff.max.ms", "retry.backoff.ms"),
        ),
        Whole(0, _LONG),
    ),
    **dict.fromkeys(
        (
            *("bootstrap.servers", "client.id", "interceptor.classes", "metadata.recovery.strategy"),
            *("metric.reporters", "security.protocol", "security.providers"),
            *("sasl.client.callback.handler.class", "sasl.jaas.config", "sasl.kerberos.kinit.cmd"),
            *("sasl.kerberos.service.name", "sasl.kerberos.ticket.renew.jitter"),
            *("sasl.kerberos.ticket.renew.window.factor", "sasl.login.callback.handler.class", "sasl.login.class"),
            *("sasl.login.refresh.window.factor", "sasl.login.refresh.window.jitter", "sasl.mechanism"),
            *("sasl.oauthbearer.expected.audience", "sasl.oauthbearer.expected.issuer"),
            *("sasl.oauthbearer.jwks.endpoint.url", "sasl.oauthbearer.scope.claim.name"),
            *("sasl.oauthbearer.sub.claim.name", "sasl.oauthbearer.token.endpoint.url"),
            *("ssl.cipher.suites", "ssl.enabled.protocols", "ssl.endpoint.identification.algorithm"),
            *("ssl.engine.factory.class", "ssl.key.password", "ssl.keymanager.algorithm"),
            *("ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.keystore.location", "ssl.keystore.password"),
            *("ssl.keystore.type", "ssl.protocol", "ssl.provider", "ssl.secure.random.implementation"),
            *("ssl.trustmanager.algorithm", "ssl.truststore.certificates", "ssl.truststore.location"),
            *("ssl.truststore.password", "ssl.truststore.type"),
        )
    ),
}
PRODUCER: dict[str, Taken] = {
    **_BOTH,
    **dict.fromkeys(
        ("enable.idempotence", "partitioner.adaptive.partitioning.enable", "partitioner.ignore.keys"), bool
    ),
    "acks": ("all", "-1", "0", "1"),
    "compression.type": ("none", "gzip", "snappy", "lz4", "zstd"),
    "compression.gzip.level": Whole(-1, 9),
    "compression.lz4.level": Whole(1, 17),
    "compression.zstd.level": Whole(-131072, 22),
    "transaction.timeout.ms": Whole(-_INT - 1, _INT),
    **dict.fromkeys(("batch.size", "delivery.timeout.ms", "max.request.size", "retries"), Whole(0, _INT)),
    **dict.fromkeys(
        ("buffer.memory", "linger.ms", "max.block.ms", "partitioner.availability.timeout.ms"), Whole(0, _LONG)
    ),
    "max.in.flight.requests.per.connection": Whole(1, _INT),
    "metadata.max.idle.ms": Whole(5000, _LONG),
    **dict.fromkeys(("key.serializer", "value.serializer", "partitioner.class", "transactional.id")),
}
CLIENT: dict[str, Taken] = {
    **PRODUCER,
    **dict.fromkeys(("allow.auto.create.topics", "check.crcs", "enable.auto.commit", "exclude.internal.topics"), bool),
    "auto.offset.reset": ("earliest", "latest", "none"),
    "isolation.level": ("read_committed", "read_uncommitted"),
    **dict.fromkeys(("heartbeat.interval.ms", "session.timeout.ms"), Whole(-_INT - 1, _INT)),
    **dict.fromkeys(
        (
            *("auto.commit.interval.ms", "default.api.timeout.ms", "fetch.max.bytes", "fetch.max.wait.ms"),
            *("fetch.min.bytes", "max.partition.fetch.bytes"),
        ),
        Whole(0, _INT),
    ),
    **dict.fromkeys(("max.poll.interval.ms", "max.poll.records"), Whole(1, _INT)),
    **dict.fromkeys(
        (
            *("client.rack", "group.id", "group.instance.id", "group.protocol", "group.remote.assignor"),
            *("key.deserializer", "value.deserializer", "partition.assignment.strategy"),
        )
    ),
}
"""Those of a producer and a consumer."""


def fault(taken: Taken, value: Scalar) -> str:
    """What is wrong with the value of a setting; empty if nothing is."""
    text = str(value).strip()
    if taken is bool:
        return "" if text.lower() in ("true", "false") else f'must be true or false, not "{value}"'
    if isinstance(taken, Whole):
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", text):
            return f'must be a whole number, not "{value}"'
        return "" if taken.least <= int(text) <= taken.most else f"must be from {taken.least} to {taken.most}"
    if taken is not None and text not in taken:
        return f'"{value}" is not one of {", ".join(taken)}'
    return ""
