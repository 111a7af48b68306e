"""A kafkad that dies at a chosen write to a log, or finds its disk full there."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Literal, NamedTuple

from tests.broker import KafkadProcess

DEADLY = Path(__file__).with_name("deadly")
When = Literal["before", "half", "after", "full", "markers"]
_numbers = count(1)


class Death(NamedTuple):
    """At the write with this number to a log whose path the pattern finds: `before` it, when `half` of it is written,
    `after` it; or the disk is `full` then and for a few more. For `markers` of transactions it is always full."""

    pattern: str
    number: int
    when: When


class DeadlyKafkad(KafkadProcess):
    """Looks at each write whether it is to die; may be told that before it is started, or while it runs."""

    @property
    def _order(self) -> Path:
        return self.log_path.with_name("order")

    def arm(self, death: Death) -> None:
        """Its writes are counted from now on."""
        made = self._order.with_suffix(".new")
        made.write_text(f"{next(_numbers)}:{death.when}:{death.number}:{death.pattern}")
        made.rename(self._order)

    def disarm(self) -> None:
        self._order.unlink(missing_ok=True)

    def command(self) -> list[str]:
        return ["env", f"PYTHONPATH={DEADLY}", f"DEATHS={self._order}", *super().command()]
