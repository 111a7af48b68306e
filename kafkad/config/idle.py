"""Finds settings of one listener, or of a mechanism there, that hold for nothing, for nobody goes by the name; and one
that does not hold at listeners where it may be thought to."""

from __future__ import annotations

from collections.abc import Sequence

from kafkad.config.config import PER_MECHANISM, Config, Source
from kafkad.config.listeners import ENCRYPTED
from kafkad.config.tables import BROKER_SETTINGS


def idle(config: Config) -> list[str]:
    """A warning for each reason, with the settings in the file that it is true of. For a configuration that can be
    used."""
    return [*_for_nothing(config, [Source.STATIC_BROKER_CONFIG]), *_without_certificates(config)]


def idle_dynamic(config: Config) -> list[str]:
    """The same of dynamic settings, which Kafka takes and ignores alike."""
    return _for_nothing(config, [Source.DYNAMIC_DEFAULT_BROKER_CONFIG, Source.DYNAMIC_BROKER_CONFIG])


def _for_nothing(config: Config, sources: Sequence[Source]) -> list[str]:
    by_reason: dict[str, set[str]] = {}
    for name in (name for source in sources for name in config.names_at(source)):
        reason = _reason(config, name) if name.startswith("listener.name.") else None
        if reason is not None:
            by_reason.setdefault(reason, set()).add(name)
    return [f"no effect: {', '.join(sorted(names))}: {reason}" for reason, names in by_reason.items()]


def _without_certificates(config: Config) -> list[str]:
    asked = config.str("ssl.client.auth")
    encrypted = (each.listener for each in config.listeners if each.protocol in ENCRYPTED)
    names = ", ".join(filter(config.needs_no_certificates, encrypted))
    if asked == "none" or not names:
        return []
    own = "listener.name.LISTENER.ssl.client.auth"
    return [f"ssl.client.auth={asked} does not hold at {names}: with SASL it has to be set as {own}"]


def _reason(config: Config, name: str) -> str | None:
    _, _, listener, base = name.split(".", 3)
    mechanism, _, bare = base.partition(".") if base not in BROKER_SETTINGS else ("", "", base)
    if (listener + mechanism) != (listener + mechanism).lower():
        return "listeners and mechanisms are written in lower case there"
    if listener == "http" and config.http_over_tls:
        return None
    if listener.upper() not in {each.listener for each in config.listeners}:
        return f"listeners has no {listener.upper()}"
    if not mechanism:
        return None
    if not bare.startswith(PER_MECHANISM):
        return f"it is of a listener and not of a mechanism: leave {mechanism} out"
    if listener.upper() not in config.login_listeners or mechanism.upper() not in config.mechanisms(listener):
        return f"listener {listener.upper()} does not have {mechanism.upper()}"
    return None
