"""The brokers that a command is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kctl.errors import Exit, KctlError

if TYPE_CHECKING:
    from kctl.session import Session


def chosen_brokers(session: Session, ids: tuple[int, ...]) -> list[int]:
    """These, or all. KctlError NOT_FOUND names those that are not there."""
    there = list(session.cluster.brokers)
    for broker in ids:
        if broker not in there:
            hint = f"brokers that are: {', '.join(map(str, there))}"
            raise KctlError(f"broker {broker} is not there", exit_code=Exit.NOT_FOUND, hints=(hint,))
    return list(dict.fromkeys(ids)) or there
