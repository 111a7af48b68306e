"""The broker killed, or stopped, while ACLs, quotas, passwords and delegation tokens change: each change is there or
not, never half of it, and none is lost that was acknowledged."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.broker import KafkadProcess
from tests.clients.asker import Asker
from tests.oracle.kafka import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

ENDS = ["kill", "kill", "stop", "kill"]
SECONDS = 0.5
USERS = 5
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="pw";'
    ),
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS;User:alice",
    "delegation.token.secret.key": "secret",
}
ANY_ACL = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
ANY_ACL |= {"resource_name_filter": None, "principal_filter": None, "host_filter": None}


class LoggedIn(Asker):
    """As alice: who has not logged in has no tokens."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.ask("SaslHandshake", 1, {"mechanism": "PLAIN"})
        assert not self.ask("SaslAuthenticate", 2, {"auth_bytes": b"\0alice\0pw"}).error_code


class Changes:
    """What was asked for, and what of it was acknowledged, over all lives of the broker."""

    def __init__(self, broker: KafkadProcess, sasl_port: int) -> None:
        self._broker = broker
        self._sasl_port = sasl_port
        self._numbers = count(1)
        self._ended = threading.Event()
        self.added: set[str] = set()
        self.removing: set[str] = set()
        self.removed: set[str] = set()
        self.users: set[str] = set()
        self.tokens: set[str] = set()
        self.quotas: dict[str, float] = {}
        self.asked_quotas: dict[str, float] = {}

    def go_on_until(self, end: Callable[[], object]) -> None:
        self._ended.clear()
        work = [self._change_acls, self._change_acls, self._change_quotas, self._add_users, self._add_tokens]
        threads = [threading.Thread(target=partial(self._repeat, each)) for each in work]
        for thread in threads:
            thread.start()
        time.sleep(SECONDS)
        end()
        self._ended.set()
        for thread in threads:
            thread.join()

    def _repeat(self, change: Callable[[Asker], None]) -> None:
        tokens = change == self._add_tokens
        with suppress(OSError):
            asker = LoggedIn(self._sasl_port) if tokens else Asker(self._broker.port)
            with closing(asker.client):
                while not self._ended.is_set():
                    change(asker)

    def _change_acls(self, asker: Asker) -> None:
        """Two for one resource, which both go in every third case."""
        number = next(self._numbers)
        name = f"topic-{number}"
        named = {"resource_type": 2, "resource_name": name, "resource_pattern_type": 3 + number % 2}
        right = {"principal": "User:bob", "host": "*", "permission_type": 3}
        rights = [{**named, **right, "operation": operation} for operation in (3, 4)]
        answer = asker.ask("CreateAcls", 3, {"creations": rights})
        if not any(result.error_code for result in answer.results):
            self.added.add(name)
        if not number % 3:
            self.removing.add(name)
            asked = {**ANY_ACL, "resource_name_filter": name}
            [result] = asker.ask("DeleteAcls", 3, {"filters": [asked]}).filter_results
            if not result.error_code and not any(acl.error_code for acl in result.matching_acls):
                self.removed.add(name)

    def _change_quotas(self, asker: Asker) -> None:
        """Both quotas of a user have the same value."""
        number = next(self._numbers)
        user = f"limited-{number % USERS}"
        self.asked_quotas[user] = number
        quotas = [{"key": f"{kind}_byte_rate", "value": number, "remove": False} for kind in ("producer", "consumer")]
        entry = {"entity": [{"entity_type": "user", "entity_name": user}], "ops": quotas}
        if not asker.ask("AlterClientQuotas", 1, {"entries": [entry], "validate_only": False}).entries[0].error_code:
            self.quotas[user] = number

    def _add_users(self, asker: Asker) -> None:
        name = f"user-{next(self._numbers)}"
        password = {"mechanism": 1, "iterations": 4_096, "salt": b"salt", "salted_password": bytes(32)}
        user = {"deletions": [], "upsertions": [{"name": name, **password}]}
        if not asker.ask("AlterUserScramCredentials", 0, user).results[0].error_code:
            self.users.add(name)

    def _add_tokens(self, asker: Asker) -> None:
        answer = asker.ask("CreateDelegationToken", 3, {"renewers": [], "max_lifetime_ms": -1})
        if not answer.error_code:
            self.tokens.add(answer.token_id)

    def check(self) -> None:
        asker = Asker(self._broker.port)
        with closing(asker.client):
            resources = asker.ask("DescribeAcls", 3, ANY_ACL).resources
            assert {len(resource.acls) for resource in resources} <= {2}
            there = {resource.resource_name for resource in resources}
            assert self.added - self.removing <= there
            assert not self.removed & there
            self._check_quotas(asker)
            users = {result.user for result in asker.ask("DescribeUserScramCredentials", 0, {"users": None}).results}
            assert self.users <= users
        asker = LoggedIn(self._sasl_port)
        with closing(asker.client):
            tokens = asker.ask("DescribeDelegationToken", 3, {"owners": None}).tokens
            assert self.tokens <= {token.token_id for token in tokens}

    def _check_quotas(self, asker: Asker) -> None:
        every = {"components": [{"entity_type": "user", "match_type": 2, "match": None}], "strict": False}
        found: dict[str, dict[str, Any]] = {
            entry.entity[0].entity_name: {value.key: value.value for value in entry.values}
            for entry in asker.ask("DescribeClientQuotas", 1, every).entries
        }
        for user, number in self.quotas.items():
            assert len(found[user]) == 2
            assert len(set(found[user].values())) == 1
            assert set(found[user].values()) <= {number, self.asked_quotas[user]}


def test_changes_are_there_or_not_and_none_that_was_acknowledged_is_lost(tmp_path: Path) -> None:
    broker, port = KafkadProcess(tmp_path, SETTINGS), free_port()
    broker.settings["listeners"] = f"PLAINTEXT://127.0.0.1:{broker.port},SASL://127.0.0.1:{port}"
    changes = Changes(broker, port)
    with broker:
        for how in ENDS:
            changes.go_on_until(broker.kill if how == "kill" else broker.stop)
            broker.start()
            changes.check()
        assert all((changes.added, changes.removed, changes.users, changes.tokens, changes.quotas))
        assert "Traceback" not in broker.log
