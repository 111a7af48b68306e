"""Asks the catalog of a table of Iceberg, before Spark starts, whether it is there and lets the job in."""

from __future__ import annotations

import json
import socket
import sqlite3
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.facts import POSTGRESQL, SQLITE
from kafkad_etl.job import Catalog, Job
from kafkad_etl.machine.reachability import SECONDS, Connect, unreachable
from kafkad_etl.planning.databases import addresses, sqlite_file

_PATH = "sink.iceberg.catalog"
_ASKED = ("", "none", "basic", "oauth2")
"""Ways to log in that are tried here. Others, such as Amazon's signatures, are Iceberg's own."""


class _Refused(Exception):
    """An answer that is not what was asked for; its text says which."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


def faults(job: Job, connect: Connect = socket.create_connection) -> Iterator[EtlError]:
    catalog = job.sink.iceberg.catalog if job.sink.iceberg else Catalog()
    if catalog.type == "rest":
        yield from _of_server(catalog)
    elif catalog.url.startswith(SQLITE):
        yield from _of_sqlite(catalog.url)
    elif catalog.url.startswith(POSTGRESQL) and (reasons := unreachable(addresses(catalog.url), connect)):
        yield _error(f"the catalog's database is not responding at {reasons}", "url")


def _error(what: str, key: str, *hints: str) -> EtlError:
    return EtlError(what, EtlExit.CLUSTER, key=f"{_PATH}.{key}", hints=hints)


def _of_sqlite(url: str) -> Iterator[EtlError]:
    """A file that is not there yet is made by Iceberg, its directory is not."""
    path = sqlite_file(url)
    if path is None:
        yield _error("a database in memory keeps no tables for the next run", "url", "jdbc:sqlite:catalog.db")
    elif not path.parent.is_dir():
        yield _error(f"the catalog {path} cannot be made: there is no directory {path.parent}", "url")
    elif path.exists():
        try:
            with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
                database.execute("SELECT count(*) FROM sqlite_master")
        except sqlite3.Error as error:
            yield _error(f"the catalog {path} cannot be read: {error}", "url")


# --- REST


def _of_server(catalog: Catalog) -> Iterator[EtlError]:
    from http.client import HTTPException

    url = catalog.url.rstrip("/")
    try:
        _ask(f"{url}/v1/config{_query(catalog)}", _headers(catalog))
    except _Refused as error:
        if found := _refusal(catalog, error):
            yield found
    except (OSError, HTTPException) as error:
        yield _error(f"the catalog {url} is not responding: {getattr(error, 'reason', error)}", "url")


def _refusal(catalog: Catalog, error: _Refused) -> EtlError | None:
    url = catalog.url.rstrip("/")
    login = next((name for name in ("token", "credential", "user") if getattr(catalog, name)), "")
    if error.status in (401, 403):
        if str(catalog.options.get("rest.auth.type", "")) not in _ASKED:
            return None
        hint = f"check {_PATH}.{login}" if login else "give a `token`, a `credential` or a `user`"
        return _error(f"the catalog {url} denies access: {error.text}", login or "url", hint)
    if catalog.warehouse and error.status in (400, 404) and catalog.warehouse in error.text:
        return _error(f"the catalog {url} has no warehouse {catalog.warehouse}: {error.text}", "warehouse")
    hint = "the URL is what comes before /v1/config"
    return _error(f"{url} does not answer like a catalog of Iceberg: {error.text}", "url", hint)


def _query(catalog: Catalog) -> str:
    from urllib.parse import urlencode

    return f"?{urlencode({'warehouse': catalog.warehouse})}" if catalog.warehouse else ""


def _headers(catalog: Catalog) -> dict[str, str]:
    headers = {
        name.removeprefix("header."): str(value)
        for name, value in catalog.options.items()
        if name.startswith("header.")
    }
    if catalog.user:
        login = b64encode(f"{catalog.user}:{catalog.password}".encode()).decode()
        return headers | {"Authorization": f"Basic {login}"}
    token = _exchanged(catalog) if catalog.credential else catalog.token
    return headers | ({"Authorization": f"Bearer {token}"} if token else {})


def _exchanged(catalog: Catalog) -> str:
    """The token that the OAuth2 server gives for the credential."""
    from urllib.parse import urlencode

    client, _, secret = catalog.credential.partition(":")
    server = str(catalog.options.get("oauth2-server-uri") or f"{catalog.url.rstrip('/')}/v1/oauth/tokens")
    form = {
        "grant_type": "client_credentials",
        "client_id": client,
        "client_secret": secret,
        "scope": catalog.options.get("scope", "catalog"),
    }
    answer = _ask(server, {"Content-Type": "application/x-www-form-urlencoded"}, urlencode(form).encode())
    return str(answer.get("access_token", ""))


class _Answer(NamedTuple):
    status: int
    reason: str
    body: bytes


def _ask(url: str, headers: dict[str, str], body: bytes | None = None) -> dict[str, Any]:
    answer = _answer(url, headers, body)
    try:
        found = json.loads(answer.body)
    except ValueError:
        found = None
    if answer.status >= 400:
        raise _Refused(answer.status, f"{answer.status} {answer.reason}{_message(found)}")
    if not isinstance(found, dict):
        raise _Refused(answer.status, "it is not JSON")
    return found


def _answer(url: str, headers: dict[str, str], body: bytes | None) -> _Answer:
    """The headers, which may have secrets, are not sent along with a redirect."""
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    request = Request(url, body)
    for name, value in headers.items():
        request.add_unredirected_header(name, value)
    try:
        with urlopen(request, timeout=SECONDS) as answer:
            return _Answer(answer.status, answer.reason, answer.read())
    except HTTPError as error:
        with error:
            return _Answer(error.code, error.reason, error.read())


def _message(found: Any) -> str:
    """What Iceberg's servers, or those of OAuth2, say of an error."""
    if not isinstance(found, dict):
        return ""
    error = found.get("error")
    text = error.get("message") if isinstance(error, dict) else found.get("error_description") or error
    return f": {text}" if text else ""
