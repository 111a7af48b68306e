"""A start imports nothing for what nobody has asked for yet."""

from __future__ import annotations

import subprocess
import sys

from kafkad.api.routes import BETWEEN_BROKERS, ROUTES

LATER = {
    "kafkad.cleaner.compact": "a worker process compacts",
    "kafkad.cleaner.worker": "a worker process compacts",
    "kafkad.broker.replication": "there is no other broker",
    "kafkad.broker.tls": "nothing is encrypted",
    "kafkad.net.tls": "nothing is encrypted",
    "kafkad.security.certificates": "nothing is encrypted",
    "kafkad.security.stores": "nothing is encrypted",
    "kafkad.security.tls_contexts": "nothing is encrypted",
    "cryptography": "there are no stores of keys, no tokens and no encrypted passwords",
    "jwt": "there are no tokens of OAUTHBEARER",
    "kafkad.broker.issuers": "there are no tokens of OAUTHBEARER",
    "kafkad.cluster.tokens": "there are no delegation tokens",
    "kafkad.cluster.acls": "there is no authorizer",
    "kafkad.security.access_log": "there is no authorizer",
    "kafkad.security.acl": "there is no authorizer",
    "kafkad.controller.remote": "there is no other broker",
    "kafkad.meta.zookeeper": "there is no ZooKeeper",
    "kafkad.net.client": "there is no other broker",
    "kafkad.security.quotas": "no client has a quota",
    "kafkad.replica.fetchers": "there is no other broker",
    "kafkad.replica.isr_changes": "there is no other broker",
    "kazoo": "there is no ZooKeeper",
    "pathlib": "takes as long as ten modules of ours",
}


def test_what_is_needed_later_is_imported_later() -> None:
    code = "import sys, kafkad.__main__, kafkad.broker; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = set(run.stdout.split())
    assert "kafkad.broker.parts" in imported
    assert imported & LATER.keys() == set()
    handlers = {route.handler.partition(":")[0] for route in (*ROUTES, *BETWEEN_BROKERS)} - {""}
    assert imported & handlers == set()
