"""Loads a Config from a file, the command line and the environment, or raises with everything that is wrong."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence

from kafkad.config.checks import (
    contradictions,
    directories_with_two_names,
    may_have_dynamic_settings,
    of_file,
)
from kafkad.config.config import Config, Source, find_setting
from kafkad.config.doubtful import doubtful
from kafkad.config.files import ConfigError, Entry, content_of, read_properties, read_yaml
from kafkad.config.idle import idle
from kafkad.config.secrets import PROVIDERS, Secrets
from kafkad.config.setting import ConfigType, Setting, Value
from kafkad.config.tables import BROKER_SETTINGS
from kafkad.config.values import parse
from kafkad.properties import is_properties, java_text, was_utf_8

KAFKAS_DEFAULTS: dict[str, Value] = {
    "listeners": "PLAINTEXT://:9092",
    "log.dir": "/tmp/kafka-logs",
    "socket.receive.buffer.bytes": 102_400,
    "socket.send.buffer.bytes": 102_400,
}
"""Settings whose kafkad default differs: a `server.properties` that leaves them out means Kafka's."""

_MAY_BE_EMPTY = "ssl.endpoint.identification.algorithm"
"""Here nothing means none, as it does for a list in a file; for other texts it means that the default holds."""
_TEXTS = (ConfigType.STRING, ConfigType.CLASS, ConfigType.PASSWORD)
_NUMBERS = (ConfigType.SHORT, ConfigType.INT, ConfigType.LONG, ConfigType.DOUBLE)
_WHILE_RUNNING = "as in Kafka, it can only be set while the broker runs, by kctl configs set or kafka-configs"
_IDS = ("broker.id", "node.id")
_KEYS = "ssl.keystore.location"
_NO_SECRETS = ("ssl.keystore.certificate.chain", "ssl.truststore.certificates", "super.users")
"""Kafka describes these like passwords."""


def load(
    config_file: str | None,
    overrides: Sequence[str],
    environ: Mapping[str, str],
    *,
    among_others: bool = False,
    again: bool = False,
) -> Config:
    """Reads `config_file`, then `NAME=VALUE` overrides. Raises ConfigError with all problems at once.
    Where there may be dynamic settings, which may have what is missing, those of keys and logins are left out.
    `among_others`: for one of the brokers of a host. `again`: a pipe, which may have been read, is not waited for.

    Without a file or where it is silent: kafkad's defaults, with the data in $STATE_DIRECTORY when systemd sets it.
    """
    loader = _Loader(Secrets(environ))
    defaults: dict[str, Value] = {}
    in_file: list[Entry] = []
    misread: list[str] = []
    if environ.get("STATE_DIRECTORY"):
        defaults["log.dir"] = environ["STATE_DIRECTORY"].split(":")[0]
    if config_file is not None:
        content, loader.from_kafka = _read(config_file, waits=not among_others and not again)
        if loader.from_kafka:
            defaults = dict(KAFKAS_DEFAULTS)
            in_file = read_properties(config_file, content)
            misread = list(_misread(in_file))
        else:
            in_file = read_yaml(config_file, content, _is_text)
    given = list({entry.name: entry for entry in map(_override, overrides)}.values())
    loader.configure(in_file, given)
    loader.take(in_file, file=config_file)
    file_is_blank = config_file is not None and not loader.values
    loader.from_kafka = False
    loader.take(given)
    loader.check_permissions()
    layers = {Source.DEFAULT_CONFIG: defaults, Source.STATIC_BROKER_CONFIG: loader.values}
    ignored = {Source.STATIC_BROKER_CONFIG: dict.fromkeys(loader.unknown, "")}
    warnings = [*loader.all_warnings(), *misread]
    config = Config(
        layers,
        file=config_file,
        secrets=loader.secrets,
        among_others=among_others,
        file_is_blank=file_is_blank,
        warnings=warnings,
        ignored=ignored,
    )
    known = of_file if may_have_dynamic_settings(config) else contradictions
    problems = loader.all_problems() or [*known(config), *directories_with_two_names(config)]
    if config_file is not None and config.int("kafkad.brokers") > 1 and not os.path.isfile(config_file):
        problems.append(f"{config_file} is no regular file, and each of the brokers has to read it")
    if problems:
        raise ConfigError(*problems)
    config.warnings += (*idle(config), *doubtful(config))
    return config


_REFERENCE = re.compile(r"\$\{[^}]*\}")
_BEHIND_A_NAME = re.compile(r"[:\s]")
_NAME = re.compile(r"[a-z]{1,20}|[A-Za-z][\w-]{0,40}(\.[\w-]{1,40})+", re.ASCII)


def _read(path: str, *, waits: bool) -> tuple[str, bool]:
    """Its text, and whether that is Java's format of properties. Where it `waits`, also of a pipe."""
    try:
        if waits:
            with open(path, "rb") as file:
                content = file.read()
        else:
            content = content_of(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{error}, and cannot be read again; to change what it said, restart") from None
    if not content.strip():  # somebody emptied it, or is about to write it: by the defaults, retention would delete
        raise ConfigError(f"{path}: is empty; to run by the defaults, leave --config away")
    as_java = java_text(content)
    if is_properties(path, as_java):
        return as_java, True
    try:
        return content.decode(), False
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not a text file in UTF-8") from None


def _misread(entries: Sequence[Entry]) -> Iterator[str]:
    """Java reads these files as ISO 8859-1, whatever they were written in: other brokers have the same letters so."""
    for entry in entries:
        if was_utf_8(entry.text or ""):
            yield (
                f"{entry.where}: {entry.name} is written in UTF-8, and read as ISO 8859-1, as by Kafka; "
                "write \\uXXXX for letters beyond ASCII"
            )


def _override(text: str) -> Entry:
    before, equals, value = text.partition("=")
    name, *swallowed = _BEHIND_A_NAME.split(before.strip(), maxsplit=1)
    if swallowed or not equals:  # nothing else is shown: it may be a password, behind another sign
        shown = name if find_setting(name) is not None else "…"
        raise ConfigError(f"--set {shown}: expected NAME=VALUE")
    unset = not value and not name.endswith(_MAY_BE_EMPTY)
    return Entry(name, None if unset else value, f"--set {name if _NAME.fullmatch(name) else '…'}")


class _Loader:
    """Takes entries one after the other; later ones win; keeps what is wrong with each."""

    def __init__(self, secrets: Secrets) -> None:
        self.from_kafka = False
        self.values: dict[str, Value] = {}
        self.unknown: list[str] = []
        """What a file for Kafka sets for somebody else."""
        self.secrets = secrets
        self._problems: dict[str, str] = {}
        self._warnings: dict[str, str] = {}
        self._without_effect: dict[str, str] = {}

    def configure(self, *sources: Sequence[Entry]) -> None:
        """Providers of secrets first: any setting may name a secret of theirs."""
        merged = {entry.name: entry for source in sources for entry in source if _is_provider(entry)}
        for number, problem in enumerate(self.secrets.configure(list(merged.values()))):
            self._problems[f"{PROVIDERS} {number}"] = problem

    def take(self, entries: Sequence[Entry], *, file: str | None = None) -> None:
        """`file` is where they come from, if they come from one."""
        entries = [entry for entry in entries if not _is_provider(entry)]
        if file is not None and any(map(_holds_password, entries)):
            self.secrets.check_permissions(file)
        if any(entry.name in _IDS for entry in entries):
            for name in _IDS:  # a later source that names the id by either name replaces both
                self._forget(name)
        for entry in entries:
            self._take(entry)

    def check_permissions(self) -> None:
        """A secret that is not one counts as wrong where `kafkad.strict.permissions` is set. So do stores of keys."""
        for name, path in self.values.items():
            if name.endswith(_KEYS):
                self.secrets.check_permissions(str(path))
        notes = self._problems if self.values.get("kafkad.strict.permissions") else self._warnings
        for path in self.secrets.loose:
            notes[path] = f"{path} holds secrets, and group or others may read it: chmod 600 {path}"

    def all_problems(self) -> list[str]:
        return list(self._problems.values())

    def all_warnings(self) -> list[str]:
        by_reason: dict[str, list[str]] = {}
        for name, reason in self._without_effect.items():
            by_reason.setdefault(reason, []).append(name)
        return [
            *self._warnings.values(),
            *(f"no effect: {', '.join(sorted(settings))}: {reason}" for reason, settings in by_reason.items()),
        ]

    def _take(self, entry: Entry) -> None:
        setting = find_setting(entry.name)
        self._forget(entry.name)
        if setting is None:
            self._unknown(entry)
        elif setting.only_dynamic:
            self._warnings[entry.name] = f"{entry.where}: {entry.name} is ignored: {_WHILE_RUNNING}"
        elif (swallowed := _swallowed(entry, setting)) is not None:
            self._problems[entry.name] = f"{entry.where}: {entry.name} has swallowed {swallowed}"
        elif entry.text or (entry.text is not None and _may_be_empty(setting)):
            self._set(entry, setting, entry.text)

    def _forget(self, name: str) -> None:
        """An override takes away what the file says, also when it only unsets it."""
        for kept in (self.values, self._problems, self._warnings, self._without_effect):
            kept.pop(name, None)

    def _unknown(self, entry: Entry) -> None:
        nearest = _nearest(entry.name)
        looks_like_one = bool(nearest) or _NAME.fullmatch(entry.name) is not None
        shown = entry.name if looks_like_one else "what stands there"  # it may be a part of a key
        if self.from_kafka:
            self._warnings[entry.name] = f"{entry.where}: {shown} is unknown and ignored"
            if looks_like_one:
                self.unknown.append(entry.name)
        else:
            self._problems[entry.name] = f"{entry.where}: {shown} is not a setting{nearest}"

    def _set(self, entry: Entry, setting: Setting, text: str) -> None:
        try:
            text = self.secrets.resolve(text)
        except ValueError as error:
            self._problems[entry.name] = f"{entry.where}: {entry.name}: {error}"
            return
        try:
            value = parse(setting, text)
        except ValueError as error:
            shown = f"{entry.name} cannot be what {entry.text} gives" if text != entry.text else str(error)
            self._problems[entry.name] = f"{entry.where}: {shown}"
            return
        if value != setting.default:
            if setting.refused:
                self._problems[entry.name] = f"{entry.where}: {entry.name} cannot be set: {setting.refused}"
                return
            if setting.unused:
                self._without_effect[entry.name] = setting.unused
        self.values[entry.name] = value
        if entry.name in _IDS:
            self._unify_ids(entry)

    def _unify_ids(self, entry: Entry) -> None:
        other = "node.id" if entry.name == "broker.id" else "broker.id"
        if self.values.setdefault(other, self.values[entry.name]) != self.values[entry.name]:
            self._problems[entry.name] = f"{entry.where}: broker.id and node.id differ; set one of them"


def _swallowed(entry: Entry, setting: Setting) -> str | None:
    """What has become a part of a value by an accident. It may be a secret, and values that are wrong are shown."""
    if setting.secret or entry.text is None:
        return None
    if entry.folded:
        return "the next line: begin that one where names begin, or put the value in quotes if all of it is meant"
    text = _REFERENCE.sub("", entry.text)
    other = next((name for name, each in BROKER_SETTINGS.items() if name in text and each.secret), None)
    return None if other is None else f"{other}, which has to begin a line of its own"


def _may_be_empty(setting: Setting) -> bool:
    """As in Kafka: a list without members is one, and nothing is no number, and none of the words of which a setting
    takes one."""
    one_of_several = setting.valid is not None and setting.default is not None and not _is_switch(setting)
    return setting.type not in _TEXTS or one_of_several or setting.name.endswith(_MAY_BE_EMPTY)


def _is_text(name: str) -> bool:
    """False where YAML may write a number or a switch in a way of its own."""
    setting = find_setting(name)
    return setting is None or not (setting.type in (ConfigType.BOOLEAN, *_NUMBERS) or _is_switch(setting))


def _is_switch(setting: Setting) -> bool:
    """Of a setting that is none of Kafka's broker's own, but a text which its authorizer reads."""
    return setting.default in ("true", "false")


def _is_provider(entry: Entry) -> bool:
    return entry.name == PROVIDERS or entry.name.startswith(f"{PROVIDERS}.")


def _holds_password(entry: Entry) -> bool:
    """True for a password that is written down, not only the name of one."""
    setting = find_setting(entry.name)
    if setting is None or not setting.sensitive or setting.name.endswith(_NO_SECRETS):
        return False
    return bool(entry.text) and "${" not in (entry.text or "")


def _nearest(name: str) -> str:
    from difflib import get_close_matches  # only when there is something to complain about

    close = get_close_matches(name, BROKER_SETTINGS, n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""
