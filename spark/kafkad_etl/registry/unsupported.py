"""What is wrong with a schema."""

from __future__ import annotations


class Unsupported(Exception):
    """A schema that nothing can be read or written with: it is none, or cannot be expressed as columns."""
