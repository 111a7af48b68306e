"""CRC-32C, from the extension module of the crc32c wheel alone.

The wheel's package imports a command line, e-mail and zip modules beside it: 6 MB and 60 ms that every start would pay.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from types import ModuleType


def _load() -> ModuleType:
    package = PathFinder.find_spec("crc32c")
    spec = package and PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    if spec is None or spec.loader is None:  # packaged in another way than we know
        import crc32c as whole

        return whole
    extension = module_from_spec(spec)
    spec.loader.exec_module(extension)
    return extension


crc32c: Callable[[bytes | bytearray | memoryview], int] = _load().crc32c
"""The CRC-32C of any bytes-like object; releases the GIL for large ones."""
