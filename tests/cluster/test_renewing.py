"""Brokers get another authority, and another user between them, while clients go on, as docs/security.md says it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ScramMechanism, UserScramCredentialDeletion

from tests.broker import KafkadProcess
from tests.certificates import Authority
from tests.cluster import secured
from tests.cluster.history import Load, new_load
from tests.cluster.processes import Cluster
from tests.cluster.secured import BROKER, LISTENER, MECHANISM, MODULE, SECONDS, Stores, password_of, set_passwords
from tests.oracle.zookeeper import missing

APP, SECOND = "app", "broker-2"
READ_AGAIN = "its TLS stores were read again"


class Machine:
    """The files of one broker."""

    def __init__(self, directory: Path, authority: Authority) -> None:
        directory.mkdir()
        self._keys, self._trusted, self._secrets = (directory / name for name in ("keys", "trusted", "secrets"))
        self.get_keys(authority)
        self.trust(authority)
        self.log_in_as(BROKER)

    def get_keys(self, authority: Authority) -> None:
        authority.issue().write(self._keys)

    def trust(self, *authorities: Authority) -> None:
        self._trusted.write_text("".join(each.pem for each in authorities))

    def log_in_as(self, user: str) -> None:
        self._secrets.write_text(f"username={user}\npassword={password_of(user)}\n")

    @property
    def settings(self) -> dict[str, str]:
        login = " ".join(f'{name}="${{file:{self._secrets}:{name}}}"' for name in ("username", "password"))
        return {
            "ssl.keystore.location": str(self._keys),
            "ssl.truststore.location": str(self._trusted),
            f"listener.name.{LISTENER.lower()}.{MECHANISM.lower()}.sasl.jaas.config": f"{MODULE} required {login};",
        }


def reload(cluster: Cluster, broker: KafkadProcess) -> None:
    before = broker.log.count(READ_AGAIN)
    assert broker.process is not None
    broker.process.send_signal(signal.SIGHUP)
    cluster.until(lambda: broker.log.count(READ_AGAIN) > before, "what the broker needs for TLS is read again")


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.timeout(600)
@pytest.mark.skipif(missing("3.8") is not None, reason=missing("3.8") or "")
def test_another_authority_and_another_user(tmp_path: Path) -> None:
    """After each step a broker is restarted: what is open between brokers says nothing of what can be opened."""
    stores = Stores(tmp_path / "stores")
    machines: dict[int, Machine] = {}

    def prepare(broker: KafkadProcess) -> None:
        number = int(broker.settings["broker.id"])
        machines[number] = Machine(tmp_path / f"machine-{number}", stores.authority)
        stores.add_listener(broker)
        broker.settings |= machines[number].settings

    with Cluster(tmp_path / "cluster", prepare=prepare) as cluster:

        def restart(load: Load, *brokers: int) -> None:
            for broker in brokers:
                cluster.stop(broker)
                cluster.start(broker)
                load.whole()
                load.until_all_go_on()

        def everywhere() -> list[tuple[Machine, KafkadProcess]]:
            return [(machines[number], cluster.brokers[number]) for number in cluster.ids]

        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        set_passwords(admin, BROKER, APP)
        old, new = stores.authority, Authority("another")
        stores.trusted.write_text(old.pem + new.pem)
        with new_load(cluster) as load:
            for broker in cluster.brokers.values():
                secured.use_between_brokers(broker)
            restart(load, *cluster.ids)
            load.move(stores.client(cluster.brokers, APP))
            for machine, broker in everywhere():
                machine.trust(old, new)
                reload(cluster, broker)
            for machine, broker in everywhere():
                machine.get_keys(new)
                reload(cluster, broker)
                restart(load, 1)
            for machine, broker in everywhere():
                machine.trust(new)
                reload(cluster, broker)
                restart(load, 2)
            set_passwords(admin, SECOND)
            for machine, broker in everywhere():
                machine.log_in_as(SECOND)
                reload(cluster, broker)
                restart(load, 3)
            gone = UserScramCredentialDeletion(BROKER, ScramMechanism.SCRAM_SHA_512)
            admin.alter_user_scram_credentials([gone])[BROKER].result(SECONDS)
            restart(load, *cluster.ids)
            assert load.anomalies == []
        load.check()
