"""The options of one command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kctl.errors import KctlError

DEFAULT_TIMEOUT = 10.0
COMPLETION = "_KCTL_COMPLETE"
"""The variable in which a shell asks what completes a line."""


class Settings:
    """The options of one run. The defaults are those of a command line without any of them.

    `command` is the one that runs, as json and yaml name it: `topics list`; `changed` what is to be said of its changes
    when it is interrupted now, or breaks off; `answered`: what programs read has begun, on standard output;
    `untold` what else is wrong, if it breaks off.
    """

    __slots__ = (
        "answered",
        "bootstrap",
        "changed",
        "color",
        "columns",
        "command",
        "command_config",
        "context",
        "debug",
        "dry_run",
        "extra",
        "limit",
        "no_headers",
        "no_pager",
        "output",
        "quiet",
        "sort",
        "timeout",
        "untold",
        "utc",
        "verbose",
        "watch",
        "yes",
    )

    def __init__(self) -> None:
        self.command = ""
        self.changed = ""
        self.answered = False
        self.untold: Sequence[KctlError] = ()
        self.context = ""
        self.bootstrap = ""
        self.command_config = ""
        self.extra: Mapping[str, str] = {}
        self.timeout = DEFAULT_TIMEOUT
        self.yes = False
        self.dry_run = False
        self.watch: float | None = None
        self.output = "table"
        self.columns: tuple[str, ...] = ()
        self.sort = ""
        self.limit: int | None = None
        self.no_headers = False
        self.no_pager = False
        self.color = "auto"
        self.utc = False
        self.quiet = False
        self.verbose = False
        self.debug = False

    @property
    def is_text(self) -> bool:
        """True if a person reads the output, rather than a program."""
        return self.output in ("table", "wide")

    def colored(self, stream: Any = None) -> bool:
        """True if output to `stream` (standard output) is coloured: on request, or on a terminal that can and may."""
        if self.color != "auto":
            return self.color == "always"
        if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
            return False
        return bool(os.environ.get("FORCE_COLOR")) or (sys.stdout if stream is None else stream).isatty()
