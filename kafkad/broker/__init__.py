"""A whole broker: `run` builds it from its configuration and serves until it is told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kafkad.broker.daemon import Daemon
from kafkad.broker.supervised import Supervised
from kafkad.config import Config


def run(config: Config, read_config: Callable[[], Config], supervised: Supervised | None = None) -> int:
    """Serve until told to stop; the exit code. `read_config` reads the configuration again, for a reload."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_serve(config, read_config, supervised))


async def _serve(config: Config, read_config: Callable[[], Config], supervised: Supervised | None) -> int:
    return await Daemon(config, read_config, supervised).serve()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
