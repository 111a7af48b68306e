"""Client of a schema registry: the HTTP API that Confluent documents and that Karapace and Apicurio serve too.

It only asks and answers; whether a failure ends a run, and with which words, is decided by its callers.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from kafkad_etl.job import Registry

if TYPE_CHECKING:
    from ssl import SSLContext

TIMEOUT_SECONDS = 5.0
_CONTENT = "application/vnd.schemaregistry.v1+json"
_HEADERS = {"Accept": _CONTENT, "Content-Type": _CONTENT}
_MAX_REFERENCES = 100


class RegistryError(Exception):
    """A registry that cannot be asked, or refuses."""

    def __init__(self, text: str, *, retriable: bool = False) -> None:
        super().__init__(text)
        self.text = text
        self.retriable = retriable
        """True if the same request may succeed later: the registry is away or overloaded."""


class Incompatible(RegistryError):
    """The registry does not accept the schema as the subject's next version."""


class Registered(NamedTuple):
    """A schema as the registry has it."""

    id: int
    text: str
    kind: str = "AVRO"
    references: Mapping[str, str] = {}
    """The texts of all schemas that it refers to, directly or not, by the name that it uses for them."""
    version: int = 0
    """The version in the subject it was asked for; 0 if it was asked for by id."""


class SchemaRegistry:
    def __init__(self, registry: Registry) -> None:
        self.url = registry.url.rstrip("/")
        self._login = ""
        """Not sent along with a redirect."""
        if registry.username:
            pair = f"{registry.username}:{registry.password}".encode()
            self._login = "Basic " + b64encode(pair).decode()
        elif registry.token:
            self._login = f"Bearer {registry.token}"
        self._tls = _tls(registry) if self.url.startswith("https:") else None

    def latest(self, subject: str) -> Registered | None:
        return self.version(subject, "latest")

    def version(self, subject: str, version: int | str) -> Registered | None:
        return self._registered(self._ask("GET", f"/subjects/{_named(subject)}/versions/{version}"))

    def versions(self, subject: str) -> list[int]:
        """Numbers of all versions, oldest first."""
        with self._understanding():
            return sorted(map(int, self._ask("GET", f"/subjects/{_named(subject)}/versions") or ()))

    def by_id(self, number: int) -> Registered | None:
        found = self._ask("GET", f"/schemas/ids/{number}")
        return self._registered({**found, "id": number}) if found else None

    def find(self, subject: str, kind: str, text: str) -> Registered | None:
        """The version of the subject that has this schema."""
        return self._registered(self._ask("POST", f"/subjects/{_named(subject)}", _body(kind, text)))

    def incompatibilities(self, subject: str, kind: str, text: str) -> list[str]:
        """The reasons why the schema cannot become the subject's next version; empty if it can."""
        path = f"/compatibility/subjects/{_named(subject)}/versions/latest?verbose=true"
        answer = self._ask("POST", path, _body(kind, text))
        if answer is None or answer.get("is_compatible", True):  # None: the subject has no version yet
            return []
        return [str(each) for each in answer.get("messages") or ()] or ["the registry does not say why"]

    def register(self, subject: str, kind: str, text: str) -> int:
        """Registers the schema as the subject's next version, or finds it there. Returns its id."""
        answer = self._ask("POST", f"/subjects/{_named(subject)}/versions", _body(kind, text))
        if answer is None:
            raise RegistryError(f"the schema registry {self.url} has no way to register schemas (404)")
        with self._understanding():
            return int(answer["id"])

    @contextmanager
    def _understanding(self) -> Iterator[None]:
        """Turns answers of another shape, as of another server, into errors."""
        try:
            yield
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RegistryError(f"{self.url} does not answer like a schema registry") from error

    def _registered(self, answer: Any) -> Registered | None:
        if not answer:
            return None
        references: dict[str, str] = {}
        with self._understanding():
            self._follow(answer, references)
            kind, version = str(answer.get("schemaType") or "AVRO"), int(answer.get("version") or 0)
            return Registered(int(answer["id"]), str(answer["schema"]), kind, references, version)

    def _follow(self, answer: Any, found: dict[str, str]) -> None:
        for reference in answer.get("references") or ():
            name = str(reference["name"])
            if name in found:
                continue
            if len(found) == _MAX_REFERENCES:
                raise RegistryError(f"a schema in {self.url} refers to more than {_MAX_REFERENCES} others")
            path = f"/subjects/{_named(str(reference['subject']))}/versions/{reference['version']}"
            inner = self._ask("GET", path)
            if not inner:
                raise RegistryError(f"the schema registry {self.url} lacks {path}, which a schema refers to")
            found[name] = str(inner["schema"])
            self._follow(inner, found)

    def _ask(self, method: str, path: str, body: Mapping[str, str] | None = None) -> Any:
        """The JSON that is answered; None for 404."""
        from http.client import HTTPException
        from urllib.error import HTTPError
        from urllib.request import Request, urlopen

        data = json.dumps(body).encode() if body is not None else None
        try:
            request = Request(self.url + path, data, _HEADERS, method=method)
            if self._login:
                request.add_unredirected_header("Authorization", self._login)
            with urlopen(request, timeout=TIMEOUT_SECONDS, context=self._tls) as answer:
                return json.load(answer)
        except HTTPError as error:
            if error.code == 404:
                error.close()
                return None
            raise self._refused(error) from error
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            text = f"the schema registry {self.url} is not responding: {reason}"
            raise RegistryError(text, retriable="CERTIFICATE_VERIFY_FAILED" not in str(reason)) from error

    def _refused(self, error: Any) -> RegistryError:
        said = _message(error.read())
        error.close()
        text = f"the schema registry {self.url} returned {error.code} {error.reason}"
        text = f"{text}: {said}" if said else text
        if error.code == 409:
            return Incompatible(text)
        return RegistryError(text, retriable=error.code == 429 or error.code >= 500)


def _named(subject: str) -> str:
    return quote(subject, safe="")


def _body(kind: str, text: str) -> dict[str, str]:
    return {"schema": text} if kind == "AVRO" else {"schema": text, "schemaType": kind}


def _message(body: bytes) -> str:
    """The text of an error, which registries answer as JSON."""
    try:
        found = json.loads(body)
    except ValueError:
        return ""
    return str(found.get("message") or "") if isinstance(found, dict) else ""


def _tls(registry: Registry) -> SSLContext:
    from ssl import SSLError, create_default_context

    try:
        context = create_default_context(cafile=registry.ca or None)
        if registry.cert:
            context.load_cert_chain(registry.cert, registry.key or None)
    except (OSError, SSLError) as error:
        files = ", ".join(filter(None, (registry.ca, registry.cert, registry.key)))
        raise RegistryError(
            f"the certificates for the schema registry {registry.url} cannot be read: {error} ({files})"
        ) from error
    return context
