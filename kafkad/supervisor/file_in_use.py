"""The configuration file that the brokers of a host run by, and whether it is another one now."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from kafkad.config.files import content_of


@dataclass(frozen=True, slots=True)
class FileInUse:
    """`path` is None where there is no file, `digest` where it could not be read a second time, as what a pipe gave."""

    path: str | None
    digest: bytes | None

    @classmethod
    def at(cls, path: str | None) -> FileInUse:
        return cls(path, _digest(path))

    @property
    def is_another_now(self) -> bool:
        return self.digest is not None and _digest(self.path) != self.digest

    def advice(self) -> str:
        """To whoever is told that a broker cannot use its configuration; empty where the file is the same."""
        if not self.is_another_now:
            return ""
        return (
            f". {self.path} is another file than the brokers run by: put the earlier one back, and this broker starts "
            "by itself; or see by --check that the new one is good, and restart all of them together (kafkad itself)"
        )


def _digest(path: str | None) -> bytes | None:
    try:
        return None if path is None else sha256(content_of(path)).digest()
    except (OSError, ValueError):
        return None
