"""Fetches writers' schemas from a schema registry by their ids, each only once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafkad_etl.driver.terms import JobFailed
from kafkad_etl.job import Registry
from kafkad_etl.messages import Failed
from kafkad_etl.registry.client import RegistryError, SchemaRegistry
from kafkad_etl.registry.protobuf import Unsupported
from kafkad_etl.registry.texts import whole


class Schemas:
    """Writers' schemas: those that were known when the run began, and those that are met in its records."""

    def __init__(self, registry: Registry, known: Mapping[int, str]) -> None:
        self._registry = registry
        self.known = dict(known)

    def learn(self, ids: Iterable[int]) -> bool:
        """Fetches unknown ids. Returns whether any of them was found."""
        unknown = [number for number in ids if number not in self.known]
        if not unknown:
            return False
        try:
            registry = SchemaRegistry(self._registry)
            answers = {number: registry.by_id(number) for number in unknown}
            found = {number: whole(each) for number, each in answers.items() if each}
        except RegistryError as error:
            raise JobFailed(Failed(kind="registry", text=error.text, retriable=error.retriable)) from error
        except Unsupported as error:
            text = f"one of the Protobuf schemas {', '.join(map(str, unknown))} cannot be used: {error}"
            raise JobFailed(Failed(kind="registry", text=text)) from error
        self.known |= found
        return bool(found)
