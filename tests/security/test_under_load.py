"""Keys, rights and logins change while clients produce and consume: the honest one notices nothing, and who has lost
what he had is out when the change is answered."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic, ScramMechanism, UserScramCredentialDeletion

from tests.broker import RawClient
from tests.certificates import client_context
from tests.cluster import secured
from tests.cluster.alone import Alone
from tests.cluster.history import GROUP, new_load
from tests.cluster.secured import BROKER, Stores, grant, revoke, set_passwords
from tests.security.test_tls_listeners import wait_for

pytestmark = pytest.mark.slow

APP, LEAVER = "app", "leaver"
TOPIC = "leavers"
SECONDS = 30
USES = (AclOperation.READ, AclOperation.WRITE)


class Leaver:
    """Produces to and consumes from its topic as fast as it is answered, whatever it is answered."""

    def __init__(self, client: dict[str, str]) -> None:
        self.told: list[int] = []
        """Errors, of records, of reading and of connections."""
        self.written = 0
        self.read: list[int] = []
        """Offsets."""
        quiet = {**client, "log_level": 0, "error_cb": self._note, "reconnect.backoff.max.ms": 100}
        self._producer = Producer({**quiet, "linger.ms": 0, "message.timeout.ms": 2000})
        self._consumer = Consumer({**quiet, "group.id": GROUP, "enable.auto.commit": False, "fetch.wait.max.ms": 20})
        self._consumer.assign([TopicPartition(TOPIC, 0, 0)])
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=each) for each in (self._produce, self._consume)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _note(self, error: KafkaError) -> None:
        self.told.append(error.code())

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.written += 1
        else:
            self._note(error)

    def _produce(self) -> None:
        while not self._stopping.is_set():
            try:
                self._producer.produce(TOPIC, b"x", partition=0, on_delivery=self._delivered)
            except KafkaException as error:
                self._note(error.args[0])
            self._producer.flush(5)
            time.sleep(0.001)

    def _consume(self) -> None:
        while not self._stopping.is_set():
            message = self._consumer.poll(0.1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                self.read.append(message.offset() or 0)
            else:
                self._note(error)
        self._consumer.close()


class Place:
    """A broker with an honest load, where others lose what they have."""

    def __init__(self, directory: Path) -> None:
        self.leavers: list[Leaver] = []
        self.stores = Stores(directory)
        self.broker = Alone(directory / "broker")
        self.stores.add_listener(self.broker)
        secured.ask_for_rights(self.broker)
        secured.close_what_no_acl_is_about(self.broker)
        self.broker.settings["super.users"] += ";User:ANONYMOUS"
        self.broker.start()
        self.admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        set_passwords(self.admin, BROKER, APP, LEAVER)
        self.admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(SECONDS)
        self.load = new_load(
            self.broker, [1], client=self.stores.client(self.broker.brokers, APP), min_insync_replicas="1"
        )
        grant(self.admin, APP, self.load.topic, *USES)
        grant(self.admin, LEAVER, TOPIC, *USES)

    @property
    def log(self) -> Path:
        [segment] = (self.broker.log_directory() / f"{TOPIC}-0").glob("*.log")
        return segment

    def leaver(self) -> Leaver:
        """At work."""
        leaver = Leaver(self.stores.client(self.broker.brokers, LEAVER))
        self.leavers.append(leaver)
        wait_for(lambda: leaver.written > 50 and len(leaver.read) > 50)
        assert leaver.told == []
        return leaver

    def shown(self) -> int:
        """The serial number of the certificate that a new client sees."""
        with RawClient(secured.port_of(self.broker)) as client:
            context = client_context(self.stores.authority)
            client.socket = connected = context.wrap_socket(client.socket, server_hostname="localhost")
            found: Any = connected.getpeercert()
            return int(found["serialNumber"], 16)

    def reload(self, until_logged: str) -> None:
        """Once it looks at its files, and says so."""
        seen = self.broker.log.count(until_logged)
        os.kill(self.broker.pid, signal.SIGHUP)
        wait_for(lambda: self.broker.log.count(until_logged) > seen)

    def check_out(self, leaver: Leaver, change: Callable[[], object], *told: int) -> None:
        """Nothing is appended nor read once the change is answered, however long he tries."""
        change()
        size = self.log.stat().st_size
        time.sleep(0.1)  # what had been answered before is read from the client's buffers
        read = len(leaver.read)
        time.sleep(1)
        assert self.log.stat().st_size == size
        assert len(leaver.read) == read
        assert set(leaver.told) & set(told), leaver.told


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    try:
        with place.load:
            yield place
            place.load.until_all_go_on()
        place.load.check()
        assert place.load.told == []
    finally:
        for leaver in place.leavers:
            leaver.stop()
        place.broker.stop()


def test_a_certificate_is_swapped(place: Place) -> None:
    """One that does not fit its key changes nothing. Who connects anew sees the new one; who is there stays."""
    keys, issued = place.stores.keys, place.stores.authority.issue()
    before = place.shown()
    half = keys.read_text().partition("-----BEGIN CERTIFICATE")[0] + issued.chain_pem
    keys.write_text(half)
    place.reload("ERROR")
    assert place.shown() == before
    issued.write(keys)
    place.reload("configuration reloaded")
    assert place.shown() == issued.certificate.serial_number != before
    place.load.until_all_go_on()
    place.load.move(place.stores.client(place.broker.brokers, APP))
    place.load.until_all_go_on()


def test_rights_are_taken_away(place: Place) -> None:
    leaver = place.leaver()
    place.check_out(leaver, lambda: revoke(place.admin, LEAVER), KafkaError.TOPIC_AUTHORIZATION_FAILED)


def test_a_user_is_deleted(place: Place) -> None:
    """Connections that are there end too."""
    leaver = place.leaver()

    def delete() -> None:
        deletion = UserScramCredentialDeletion(LEAVER, ScramMechanism.SCRAM_SHA_512)
        place.admin.alter_user_scram_credentials([deletion])[LEAVER].result(SECONDS)

    place.check_out(leaver, delete, KafkaError._AUTHENTICATION)
