"""Names of Java's classes as Py4J finds them, each asked for once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from py4j.java_gateway import JavaClass, JavaPackage, JVMView

Find = Callable[[Any, str], Any]


def remember() -> None:
    """For all that this process asks of the JVM from now on, PySpark included.

    Py4J asks for each part of a name each time that it is used, and the JVM looks through all its jars: is `org` a
    class, is `org.apache`? Half of what a small batch took went into that.
    """
    for owner in (JVMView, JavaPackage):
        owner.__getattr__ = remembering(owner.__getattr__)


def remembering(find: Find) -> Find:
    def found(owner: Any, name: str) -> Any:
        it = find(owner, name)
        if isinstance(it, JavaClass | JavaPackage):
            owner.__dict__[name] = it  # where Python looks first
        return it

    return found
