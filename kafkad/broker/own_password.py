"""The password by which this broker logs in at others, beside what the metadata store has of it, for SCRAM.

Connections outlast a change of either: nothing but the next start would notice that the two are no longer one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from kafkad.broker.settings import Settings
from kafkad.cluster.entities import EntityConfigs, Overrides
from kafkad.config import Config
from kafkad.model import Entity
from kafkad.security.scram import FEWEST_ITERATIONS, HASHES, MOST_ITERATIONS, ScramCredential

log = logging.getLogger(__name__)


class _Login(NamedTuple):
    """At a listener of other brokers, by the line of `setting`."""

    setting: str
    mechanism: str
    username: str
    password: str


class OwnPassword:
    """Looks at it from the beginning on, and whenever the settings or the user's credentials are others."""

    def __init__(self, settings: Settings, entities: EntityConfigs) -> None:
        self._settings = settings
        self._entities = entities
        self._logins: list[_Login] = []
        self._compared: dict[tuple[_Login, str], bool] = {}
        """By login and stored credential, for a comparison takes milliseconds."""
        self._seen: set[tuple[str, str]] = set()
        """Mechanism and user of those that the store has had a credential of."""
        self.settings_changed()
        entities.listen(self._user_changed)

    def settings_changed(self) -> None:
        self._logins = list(_logins(self._settings.config))
        self._look()

    def _user_changed(self, entity: Entity, overrides: Overrides) -> None:
        if entity.client is None and any(login.username == entity.user for login in self._logins):
            self._look()

    def _look(self) -> None:
        found = {login: self._entities.of(Entity(user=login.username)).get(login.mechanism) for login in self._logins}
        stored = [(login, text) for login, text in found.items() if text is not None]
        self._seen |= {(login.mechanism, login.username) for login, _ in stored}
        self._compared = {each: self._compared[each] if each in self._compared else _is_right(*each) for each in stored}
        for (login, _), is_right in self._compared.items():
            if not is_right:
                log.error(
                    "%s: the password of %s is not the one in the metadata store: other brokers refuse new connections "
                    "of this one, and after a restart it is not ready; correct the line and send SIGHUP, or set that "
                    "password for the user (kctl users set-scram %s)",
                    *(login.setting, login.username, login.username),
                )
        for login, text in found.items():
            if text is None and (login.mechanism, login.username) in self._seen:
                log.error(
                    "%s: the metadata store has no credential of %s for %s any more: other brokers refuse "
                    "connections of this one, and after a restart it is not ready; set the password of that line for "
                    "the user (kctl users set-scram %s)",
                    *(login.setting, login.username, login.mechanism, login.username),
                )


def _logins(config: Config) -> Iterator[_Login]:
    mechanism = config.str("sasl.mechanism.inter.broker.protocol")
    if mechanism not in HASHES or not config.has_others:
        return
    for listener in sorted(config.login_listeners & {config.inter_broker_listener, config.control_plane_listener}):
        module = None
        with suppress(ValueError):  # of a dynamic line, by which nobody can log in, and which is told of elsewhere
            module = config.jaas(listener, mechanism)
        if module is not None and module.username is not None and module.password is not None:
            setting = f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"
            yield _Login(setting, mechanism, module.username, module.password)


def _is_right(login: _Login, text: str) -> bool:
    """Nothing is wrong with the password where the credential cannot be used by anybody."""
    try:
        stored = ScramCredential.parse(text)
        if not FEWEST_ITERATIONS <= stored.iterations <= MOST_ITERATIONS:
            return True
        hash_name = HASHES[login.mechanism]
        return stored == ScramCredential.of_password(hash_name, login.password, stored.salt, stored.iterations)
    except ValueError:
        return True
