"""Resources: topics, brokers, loggers, groups and client metrics have settings; users, clients and addresses quotas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkad.errors import ErrorCode
from kctl.errors import Exit, KctlError, did_you_mean, failure
from kctl.texts.parsing import LARGEST_INT32, whole_number

if TYPE_CHECKING:
    from kafkad.wire.messages.describe_configs import DescribeConfigsResourceResult
    from kctl.reach.session import Session

TOPIC = 2
_TYPES = {"topic": TOPIC, "broker": 4, "logger": 8, "client-metrics": 16, "group": 32}
_QUOTAS = {"user": "user", "client": "client-id", "ip": "ip"}
_KINDS = (*_TYPES, *_QUOTAS)
_SOURCES = {
    1: "topic",
    2: "broker",
    3: "all brokers",
    4: "file",
    5: "default",
    6: "logger",
    7: "client-metrics",
    8: "group",
}
_DEFAULT = 5
_LIST = 7
"""Kafka's ConfigDef.Type.LIST."""
_SECRETS = ("password", "secret", "secret.key", "jaas.config", "keystore.key", "master.key", "http.token")


class Resource(NamedTuple):
    """`name` is empty for the default of all brokers, users, clients or addresses."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}" if self.name else f"{self.kind}s"

    @property
    def has(self) -> str:
        """What its settings are called."""
        return "logger" if self.kind == "logger" else "setting"

    @property
    def has_quotas(self) -> bool:
        return self.kind in _QUOTAS


class Entry(NamedTuple):
    """One setting. `value` is None where it is sensitive, or not set."""

    name: str
    value: str | None
    source: str
    is_default: bool
    read_only: bool
    sensitive: bool
    synonyms: tuple[tuple[str, str, str | None], ...] = ()
    """Other places that set it: source, name there, value; the first one counts."""
    doc: str | None = None
    is_list: bool = False

    @property
    def shown(self) -> str | None:
        return "(hidden)" if self.sensitive else self.value


Described = dict[Resource, list[Entry]]
Refused = dict[Resource, tuple[int, str | None]]
"""The code and the message of a broker's answer."""


def parse_resource(text: str) -> Resource:
    """`topic/orders`, `broker/1`; `brokers`: what holds for all of them."""
    kind, slash, name = text.partition("/")
    if not slash and kind.endswith("s") and kind[:-1] in ("broker", *_QUOTAS):
        return Resource(kind[:-1], "")
    singular = kind if kind in _KINDS else kind.removesuffix("s")
    if singular not in _KINDS:
        hints = did_you_mean(kind, _KINDS) or (f"kinds are: {', '.join(_KINDS)}",)
        raise KctlError(f'"{text}" is not a resource', exit_code=Exit.USAGE, hints=hints)
    if not name:
        raise KctlError(f'"{text}" names no {singular}', exit_code=Exit.USAGE, hints=(f"as in {singular}/NAME",))
    if singular in ("broker", "logger") and whole_number(name, LARGEST_INT32) is None:
        what = f'"{name}" is not a broker id'
        raise KctlError(what, exit_code=Exit.USAGE, hints=(f"as in {singular}/1",))
    return Resource(singular, name)


def described(
    session: Session,
    resources: Iterable[Resource],
    keys: Sequence[str] | None = None,
    *,
    synonyms: bool = False,
    documentation: bool = False,
) -> tuple[Described, list[KctlError]]:
    """The settings of each (only those with these names), and what is wrong with resources that have none."""
    from kafkad.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

    found: Described = {}
    errors: list[KctlError] = []
    refused: Refused = {}
    asked = list(dict.fromkeys(resources))
    at_broker: dict[int | None, list[DescribeConfigsResource]] = {}
    for resource in asked:
        if not resource.has_quotas:
            item = DescribeConfigsResource(
                resource_type=_TYPES[resource.kind],
                resource_name=resource.name,
                configuration_keys=None if keys is None else list(keys),
            )
            at_broker.setdefault(broker_of(resource), []).append(item)
    requests = [
        (broker, DescribeConfigsRequest(resources=r, include_synonyms=synonyms, include_documentation=documentation))
        for broker, r in at_broker.items()
    ]
    for answer in session.call_many(requests):
        if isinstance(answer, KctlError):
            errors.append(answer)
            continue
        for result in answer.results:
            resource = Resource(_kind(result.resource_type), result.resource_name)
            if result.error_code:
                refused[resource] = result.error_code, result.error_message
            else:
                found[resource] = sorted(map(entry, result.configs))
    errors += _failures(session, refused, changes=False).values()
    if quotas := [resource for resource in asked if resource.has_quotas]:
        found |= _quotas(session, quotas)
    return {resource: found[resource] for resource in asked if resource in found}, errors


def altered(
    session: Session, changes: Mapping[Resource, Sequence[Any]], *, validate_only: bool
) -> dict[Resource, KctlError]:
    """Sends changes of settings (`Assignment`s), each by itself; the resources that were refused, and why."""
    from kafkad.wire.messages.incremental_alter_configs import (
        AlterableConfig,
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
    )

    at_broker: dict[int | None, list[AlterConfigsResource]] = {}
    for resource, assignments in changes.items():
        configs = [AlterableConfig(name=name, config_operation=op, value=value) for name, op, value in assignments]
        item = AlterConfigsResource(resource_type=_TYPES[resource.kind], resource_name=resource.name, configs=configs)
        at_broker.setdefault(broker_of(resource), []).append(item)
    answers = session.call_many(
        [
            (broker, IncrementalAlterConfigsRequest(resources=items, validate_only=validate_only))
            for broker, items in at_broker.items()
        ]
    )
    failed: dict[Resource, KctlError] = {}
    refused: Refused = {}
    for broker, answer in zip(at_broker, answers, strict=True):
        if isinstance(answer, KctlError):
            failed |= {resource: answer for resource in changes if broker_of(resource) == broker}
            continue
        for result in answer.responses:
            if result.error_code:
                resource = Resource(_kind(result.resource_type), result.resource_name)
                refused[resource] = result.error_code, result.error_message
    return failed | _failures(session, refused, changes=not validate_only)


def is_secret(name: str, known: Mapping[str, Entry]) -> bool:
    """Whether its value must not be shown. A listener's own password is described only once it is set, and those of
    brokers in a file are described by no topic."""
    if name in known:
        return known[name].sensitive
    if name.endswith(_SECRETS):
        return True
    return any(entry.sensitive and name.endswith(f".{entry.name}") for entry in known.values())


def broker_of(resource: Resource) -> int | None:
    """Only a broker itself knows its own settings; the others are known to all."""
    return int(resource.name) if resource.kind in ("broker", "logger") and resource.name else None


def _kind(number: int) -> str:
    return next(kind for kind, known in _TYPES.items() if known == number)


def _failures(session: Session, refused: Refused, *, changes: bool) -> dict[Resource, KctlError]:
    failures = {
        resource: failure(code, str(resource), message, changes=changes)
        for resource, (code, message) in refused.items()
    }
    unknown = {resource for resource, (code, _) in refused.items() if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    missing = {resource.name: resource for resource in refused if resource.kind == "topic" and resource in unknown}
    if missing:
        from kctl.command.choosing import all_unknown

        told = all_unknown("topic", list(missing), lambda: [topic.name for topic in session.metadata()])
        failures |= {missing[name]: error for name, error in told.items()}
    return failures


def entry(config: DescribeConfigsResourceResult) -> Entry:
    source = config.config_source
    return Entry(
        config.name,
        None if config.is_sensitive else config.value,
        _SOURCES.get(source, "default" if config.is_default else "set"),
        source == _DEFAULT or (source < 0 and config.is_default),
        config.read_only,
        config.is_sensitive,
        tuple((_SOURCES.get(s.source, "?"), s.name, s.value) for s in config.synonyms),
        config.documentation,
        config.config_type == _LIST,
    )


def _quotas(session: Session, resources: Sequence[Resource]) -> Described:
    from kafkad.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest

    asked: list[tuple[int | None, DescribeClientQuotasRequest]] = []
    for kind, name in resources:
        match = ComponentData(entity_type=_QUOTAS[kind], match_type=0 if name else 1, match=name or None)
        asked.append((None, DescribeClientQuotasRequest(components=[match], strict=True)))
    found: Described = {}
    for resource, answer in zip(resources, session.call_many(asked), strict=True):
        if isinstance(answer, KctlError):
            raise answer
        if answer.error_code:
            raise failure(answer.error_code, str(resource), answer.error_message)
        values = {value.key: value.value for entry in answer.entries or [] for value in entry.values}
        found[resource] = [
            Entry(key, f"{value:.15g}", resource.kind, False, False, False) for key, value in sorted(values.items())
        ]
    return found
