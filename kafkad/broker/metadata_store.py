"""The metadata store as this process reaches it: its own embedded one, or one that it shares with other brokers."""

from __future__ import annotations

from dataclasses import dataclass

from kafkad.meta.embedded import EmbeddedStore
from kafkad.meta.store import MetaStore
from kafkad.metrics import Collector


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataStore:
    """This broker's session, and the embedded store where this process owns it."""

    session: MetaStore
    embedded: EmbeddedStore | None = None
    collect: Collector | None = None
    """Its metrics, where it has any of its own."""

    @property
    def is_shared(self) -> bool:
        """True if other brokers may be in it."""
        return self.embedded is None

    def will_serve(self) -> None:
        """To be called before clients are served: what they are told of has to be on the disk."""
        if self.embedded is not None:
            self.embedded.is_starting = False

    @property
    def problem(self) -> str | None:
        """Why no changes are taken now, in words for people."""
        return self.session.problem

    def problem_told(self, *, in_full: bool) -> str | None:
        """The same; unless in full, without the path of a store that is this broker's own."""
        return self.problem if self.embedded is None else self.embedded.problem_told(in_full=in_full)

    async def close(self) -> None:
        """Ends the session; ephemeral nodes of an embedded store go at its next `open`."""
        if self.embedded is not None:
            await self.embedded.close()
        else:
            await self.session.close()
