"""Fetches writers' schemas from a schema registry by their ids, each only once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kafkad_etl.driver.terms import JobFailed
from kafkad_etl.job import Registry
from kafkad_etl.messages import Failed
from kafkad_etl.registry.client import Registered, RegistryError, SchemaRegistry
from kafkad_etl.registry.protobuf import NoProtoc
from kafkad_etl.registry.texts import KINDS, whole
from kafkad_etl.registry.unsupported import Unsupported


class Schemas:
    """Writers' schemas: those that were known when the run began, and those that are met in its records."""

    def __init__(
        self,
        registry: Registry,
        form: str,
        known: Mapping[int, str],
        fault: Callable[[str], str | None] = lambda _: None,
    ) -> None:
        """`fault` says why values of a schema cannot be read, if they cannot."""
        self._registry, self._form, self._fault = registry, form, fault
        self.known: dict[int, str] = {}
        self.unusable: dict[int, str] = {}
        """Those that no value of this format can have been written with, by their ids, and why."""
        for number, text in known.items():
            self._keep(number, text)

    def learn(self, ids: Iterable[int]) -> bool:
        """Fetches unknown ids. Returns whether any of them was found, usable or not."""
        unknown = [number for number in ids if number not in self.known and number not in self.unusable]
        if not unknown:
            return False
        try:
            registry = SchemaRegistry(self._registry)
            answers = {number: registry.by_id(number) for number in unknown}
            found = [each for each in answers.values() if each]
            for each in found:
                self._take(each)
        except RegistryError as error:
            raise JobFailed(Failed(kind="registry", text=error.text, retriable=error.retriable)) from error
        except NoProtoc as error:
            text = f"the Protobuf schemas {', '.join(map(str, unknown))} of the registry cannot be compiled: {error}"
            raise JobFailed(Failed(kind="environment", text=text)) from error
        return bool(found)

    def _take(self, found: Registered) -> None:
        try:
            self._keep(found.id, self._text(found))
        except Unsupported as error:
            self.unusable[found.id] = str(error)

    def _keep(self, number: int, text: str) -> None:
        if fault := self._fault(text):
            self.unusable[number] = fault
        else:
            self.known[number] = text

    def _text(self, found: Registered) -> str:
        if self._form == "json":  # values are read without it
            return found.text
        if found.kind != KINDS[self._form]:
            raise Unsupported(f"its type is {found.kind}, not {KINDS[self._form]}")
        return whole(found)
