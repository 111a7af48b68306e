"""Fetches schemas from a schema registry by id, each only once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from kafkad_etl.driver.terms import JobFailed
from kafkad_etl.job import Registry
from kafkad_etl.messages import Failed

TIMEOUT_SECONDS = 20.0
Get = Callable[[str], Any]
"""Fetches the JSON at a path; None if not found."""


class Schemas:
    """The writers' schemas."""

    def __init__(self, get: Get) -> None:
        self._get = get
        self.known: dict[int, str] = {}

    def learn_subject(self, subject: str) -> None:
        """Fetches all versions, since any of them may have written what is in a topic."""
        for version in self._get(f"/subjects/{subject}/versions") or ():
            found = self._get(f"/subjects/{subject}/versions/{version}")
            if found:
                self.known[int(found["id"])] = found["schema"]

    def learn(self, ids: Iterable[int]) -> bool:
        """Fetches unknown ids. Returns whether any of them was found."""
        new = {number: self._get(f"/schemas/ids/{number}") for number in ids if number not in self.known}
        found = {number: answer["schema"] for number, answer in new.items() if answer}
        self.known |= found
        return bool(found)


def http_get(registry: Registry) -> Get:
    from base64 import b64encode
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    headers = {"Accept": "application/vnd.schemaregistry.v1+json"}
    if registry.username:
        pair = f"{registry.username}:{registry.password}".encode()
        headers["Authorization"] = "Basic " + b64encode(pair).decode()

    def get(path: str) -> Any:
        try:
            with urlopen(Request(registry.url.rstrip("/") + path, headers=headers), timeout=TIMEOUT_SECONDS) as answer:
                return json.load(answer)
        except HTTPError as error:
            error.close()
            if error.code == 404:
                return None
            denied = error.code in (401, 403)
            raise _failed(registry, f"returned {error.code} {error.reason}", retriable=not denied) from error
        except (OSError, HTTPException, ValueError) as error:
            raise _failed(registry, f"is not responding: {error}", retriable=True) from error

    return get


def _failed(registry: Registry, what: str, *, retriable: bool) -> JobFailed:
    return JobFailed(Failed(kind="schema", text=f"the schema registry {registry.url} {what}", retriable=retriable))
