"""Which of eight levels sets a client's quota, and with whom it shares it."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import NamedTuple

from kafkad.model import DEFAULT, Entity
from kafkad.security.quotas.keys import Quota

Overrides = Mapping[str, str]


class Sharers(NamedTuple):
    """The clients that use up one quota together: all of a user, all of one client id, or one client id of a user."""

    user: str
    client: str


def levels(user: str, client: str) -> tuple[Entity, ...]:
    """The first that has the quota counts: every quota of users stands before those of clients."""
    return (
        Entity(user=user, client=client),
        Entity(user=user, client=DEFAULT),
        Entity(user=user),
        Entity(user=DEFAULT, client=client),
        Entity(user=DEFAULT, client=DEFAULT),
        Entity(user=DEFAULT),
        Entity(client=client),
        Entity(client=DEFAULT),
    )


def level_of(
    quota: Quota, user: str, client: str, entities: Mapping[Entity, Overrides]
) -> tuple[float, Sharers] | None:
    """The quota's value and with whom it is shared; None if there is none on any level."""
    for entity in levels(user, client):
        value = number(entities.get(entity, {}).get(quota))
        if value is not None:
            return value, Sharers(
                user="" if entity.user is None else user, client="" if entity.client is None else client
            )
    return None


def number(text: str | None) -> float | None:
    """None for what somebody wrote by hand that is no number from 0 up: it limits nobody."""
    try:
        value = -1.0 if text is None else float(text)
    except ValueError:
        return None
    return value if 0 <= value < inf else None
