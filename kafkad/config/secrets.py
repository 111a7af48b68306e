"""Secrets that settings name instead of holding them, as Kafka's config providers: `${file:PATH:KEY}` and its like.

A name may stand anywhere in a value, also several times. These are always there; `config.providers` adds other names
for the first three, with the limits that it sets for them, and in what clients set only those other names count:

- `${file:PATH:KEY}`: KEY of a properties file;
- `${directory:DIR:FILE}`: what a file of this directory holds, without the line's end;
- `${env:NAME}`: a variable of the environment;
- `${credential:NAME}`: a file in `$CREDENTIALS_DIRECTORY`, where systemd puts what `LoadCredential` names.

No error says what a secret is: it says its name, and where it was looked for.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from io import StringIO

from kafkad.config.files import Entry, content_of, read_properties

PROVIDERS = "config.providers"
_NAMED = re.compile(r"\$\{([^}:]*):(?:([^}:]*):)?([^}]*)\}")
_JAVA = "org.apache.kafka.common.config.provider."
_OTHERS_MAY = stat.S_IRWXG | stat.S_IRWXO

Provider = Callable[[str, str], str]
"""From a path, empty where there is none, and a key to the secret. Raises ValueError."""


class Secrets:
    """Looks secrets up. `loose` are the files read so far that group or others may read."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.loose: dict[str, None] = {}
        self._environ = environ
        self._providers: dict[str, Provider] = {
            "file": self._from_file,
            "directory": self._from_directory,
            "env": self._from_environment,
            "credential": self._credential,
        }
        self._configured: dict[str, Provider] = {}
        self._kinds = {
            f"{_JAVA}FileConfigProvider": (self._from_file, "allowed.paths"),
            f"{_JAVA}DirectoryConfigProvider": (self._from_directory, "allowed.paths"),
            f"{_JAVA}EnvVarConfigProvider": (self._from_environment, "allowlist.pattern"),
        }

    def configure(self, entries: Sequence[Entry]) -> list[str]:
        """Takes `config.providers` and what belongs to it. Returns what is wrong with that."""
        given = {entry.name: entry for entry in entries if entry.text}
        listed = given.pop(PROVIDERS, None)
        names = [name.strip() for name in listed.text.split(",")] if listed and listed.text else []
        problems = [
            f"{entry.where}: {entry.name} belongs to no provider: {PROVIDERS} does not name it"
            for entry in given.values()
            if not any(entry.name.startswith(f"{PROVIDERS}.{name}.") for name in names)
        ]
        for name in names:
            assert listed is not None
            of_provider = {key.removeprefix(f"{PROVIDERS}.{name}."): entry for key, entry in given.items()}
            problem = self._add(name, of_provider)
            if problem is not None:
                problems.append(f"{listed.where}: {PROVIDERS}: {problem}")
        return problems

    def resolve(self, text: str) -> str:
        """`text` with secrets in the place of their names. Raises ValueError."""
        return _resolved(text, self._providers)

    def resolve_dynamic(self, text: str) -> str:
        """As `resolve`, for what clients set: only by the providers of `config.providers`, so that they reach no more
        of this machine than its operator means them to."""
        return _resolved(text, self._configured)

    def check_permissions(self, path: str) -> None:
        """Notes it if group or others may read the file. One that cannot be looked at is named by who opens it."""
        with suppress(OSError):
            if os.stat(path).st_mode & _OTHERS_MAY:
                self.loose[path] = None

    def _add(self, name: str, entries: Mapping[str, Entry]) -> str | None:
        """Why this provider cannot be, if it cannot."""
        java = entries.get("class")
        kind = self._kinds.get(java.text or "") if java is not None else None
        if kind is None:
            known = ", ".join(kind.removeprefix(_JAVA) for kind in self._kinds)
            return f"{PROVIDERS}.{name}.class has to be one of {known} in {_JAVA[:-1]}"
        provider, parameter = kind
        limit = entries.get(f"param.{parameter}")
        if limit is None or not limit.text:
            self._configured[name] = provider
        elif parameter == "allowed.paths":
            self._configured[name] = _within(provider, limit.text.split(","))
        else:
            try:
                self._configured[name] = _matching(provider, re.compile(limit.text))
            except re.error as error:
                return f"{limit.name}: {limit.text!r} is not a pattern: {error}"
        self._providers[name] = self._configured[name]
        return None

    def _from_file(self, path: str, key: str) -> str:
        if not path:
            raise ValueError("expected ${file:PATH:KEY}")
        for entry in read_properties(path, self._read(path)):
            if entry.name == key:
                return entry.text or ""
        raise ValueError(f"{path} has no {key}")

    def _from_directory(self, path: str, key: str) -> str:
        if not path or os.path.basename(key) != key:
            raise ValueError("expected ${directory:DIR:FILE}, with a file that is in this directory itself")
        return self._read(os.path.join(path, key)).removesuffix("\n")

    def _from_environment(self, path: str, key: str) -> str:
        if key not in self._environ:
            raise ValueError(f"the environment has no variable {key}")
        return self._environ[key]

    def _credential(self, path: str, key: str) -> str:
        """systemd sees to who may read it."""
        directory = self._environ.get("CREDENTIALS_DIRECTORY")
        if not directory:
            raise ValueError("there is no $CREDENTIALS_DIRECTORY: does the unit have LoadCredential?")
        if path or os.path.basename(key) != key:
            raise ValueError("expected ${credential:NAME}")
        return _text_of(os.path.join(directory, key)).removesuffix("\n")

    def _read(self, path: str) -> str:
        text = _text_of(path)
        self.check_permissions(path)
        return text


def names_secrets(text: str) -> bool:
    return _NAMED.search(text) is not None


def _resolved(text: str, providers: Mapping[str, Provider]) -> str:
    def secret(match: re.Match[str]) -> str:
        name, path, key = match[1], match[2] or "", match[3]
        provider = providers.get(name)
        if provider is None:
            known = ", ".join(providers) or f"those that {PROVIDERS} names"
            raise ValueError(f"{match[0]}: there is no provider of secrets named {name!r}, only {known}")
        try:
            return provider(path, key)
        except OSError as error:
            raise ValueError(f"{match[0]}: {error.filename or path}: {error.strerror}") from None
        except ValueError as error:
            raise ValueError(f"{match[0]}: {error}") from None

    return _NAMED.sub(secret, text) if "${" in text else text


def _text_of(path: str) -> str:
    """With \\n at the end of each line, whichever end it has."""
    return StringIO(content_of(path).decode(), newline=None).getvalue()


def _within(provider: Provider, paths: Sequence[str]) -> Provider:
    allowed = [os.path.realpath(path.strip()) for path in paths if path.strip()]

    def limited(path: str, key: str) -> str:
        found = os.path.realpath(path)
        if not any(os.path.commonpath([found, each]) == each for each in allowed):
            raise ValueError(f"{path} is outside of allowed.paths")
        return provider(path, key)

    return limited


def _matching(provider: Provider, pattern: re.Pattern[str]) -> Provider:
    def limited(path: str, key: str) -> str:
        if not pattern.fullmatch(key):
            raise ValueError(f"{key} does not match allowlist.pattern")
        return provider(path, key)

    return limited
