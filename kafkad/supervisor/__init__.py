"""Several brokers on one host (`kafkad --brokers N`): `run` starts them, owns their metadata store and stops them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from kafkad.config import Config
from kafkad.supervisor.supervisor import Supervisor


def run(config: Config, read_config: Callable[[], Config], command: Sequence[str]) -> int:
    """Serve until told to stop; the exit code. `command` starts one broker with this configuration."""
    return asyncio.run(_serve(config, read_config, command))


async def _serve(config: Config, read_config: Callable[[], Config], command: Sequence[str]) -> int:
    return await Supervisor(config, read_config, command).serve()
