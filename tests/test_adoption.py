"""A first start on directories of topics whose settings are not known: nothing of them may be lost by that."""

from __future__ import annotations

import time
from pathlib import Path

from tests.broker import KafkadProcess
from tests.clients.asker import Asker, batch, produce

SETTINGS = {"log.retention.check.interval.ms": "50", "offsets.topic.num.partitions": "1"}
KEPT = {"retention.ms": "-1", "retention.bytes": "-1"}


def settings_of(asker: Asker, topic: str) -> dict[str, str]:
    """Those that the topic has of its own."""
    resource = {"resource_type": 2, "resource_name": topic, "configuration_keys": None}
    (result,) = asker.ask("DescribeConfigs", 4, {"resources": [resource]}).results
    return {config.name: config.value for config in result.configs if config.config_source == 1}


def earliest(asker: Asker, topic: str) -> int:
    partitions = [{"partition_index": 0, "timestamp": -2}]
    asked = {"replica_id": -1, "topics": [{"name": topic, "partitions": partitions}]}
    return int(asker.ask("ListOffsets", 7, asked).topics[0].partitions[0].offset)


def test_adopted_topics_keep_their_records(tmp_path: Path) -> None:
    kafkad = KafkadProcess(tmp_path, SETTINGS).start()
    asker = Asker(kafkad.port)
    asker.create("old", retention_ms="-1")
    for topic in ("young", "compacted"):
        asker.create(topic, retention_ms="-1")
        asker.ask(
            "DeleteRecords", 2, {"topics": [{"name": topic, "partitions": [{"partition_index": 0, "offset": 6}]}]}
        )
        asker.ask("Produce", 7, produce(topic, batch(1, stamp=int(time.time() * 1000))))
    asker.ask("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": ["a"]})
    asker.client.close()
    kafkad.stop()
    (kafkad.log_directory() / "kafkad-metadata.journal").unlink()
    (kafkad.log_directory() / "cleaner-offset-checkpoint").write_text("0\n1\ncompacted 0 6\n")
    with kafkad:
        asker = Asker(kafkad.port)
        assert settings_of(asker, "old") == settings_of(asker, "compacted") == KEPT
        assert settings_of(asker, "young") == {}
        assert settings_of(asker, "__consumer_offsets")["cleanup.policy"] == "compact"
        asker.create("another")
        while earliest(asker, "another") < 6:  # retention has been round
            pass
        assert earliest(asker, "old") == 0
        assert "until their cleanup.policy and retention.ms are set: compacted, old" in kafkad.log
        asker.client.close()


def test_a_start_that_would_adopt_a_part_of_the_topics_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    kafkad = KafkadProcess(tmp_path, SETTINGS, log_dirs=[one, two]).start()
    asker = Asker(kafkad.port)
    for topic in ("a", "b"):
        asker.create(topic)
    asker.client.close()
    kafkad.stop()
    (one / "kafkad-metadata.journal").unlink()
    checkpoint = two / "recovery-point-offset-checkpoint"
    whole = checkpoint.read_text()
    checkpoint.write_text("torn")
    before = sorted(path.name for path in one.iterdir())
    kafkad.start(wait=False)
    assert kafkad.process is not None
    assert kafkad.process.wait(30) == 1
    assert f"a log directory cannot be used, where more of them may be: {checkpoint}" in kafkad.log
    assert sorted({path.name for path in one.iterdir()} - {"kafkad-metadata.journal"}) == before
    assert ".kafka_cleanshutdown" in before
    checkpoint.write_text(whole)
    with kafkad:
        assert "adopted 2 topics with 2 partitions" in kafkad.log


def test_a_topic_that_was_deleted_and_made_again_out_of_sight_is_served(tmp_path: Path) -> None:
    """As a Kafka leaves it that ran between two starts; here an older metadata store is put back."""
    kafkad = KafkadProcess(tmp_path, SETTINGS)
    journal = kafkad.log_directory() / "kafkad-metadata.journal"
    with kafkad:
        create(kafkad, "a")
    before = journal.read_bytes()
    with kafkad:
        delete(kafkad, "a")
        made_again = create(kafkad, "a")
    journal.write_bytes(before)
    with kafkad:
        asker = Asker(kafkad.port)
        assert asker.topic_id("a") == made_again
        (answer,) = asker.ask("Produce", 7, produce("a", batch(1))).responses
        assert answer.partition_responses[0].error_code == 0
        asker.client.close()


def create(kafkad: KafkadProcess, topic: str) -> bytes:
    asker = Asker(kafkad.port)
    asker.create(topic)
    topic_id = asker.topic_id(topic)
    asker.client.close()
    return topic_id


def delete(kafkad: KafkadProcess, topic: str) -> None:
    asker = Asker(kafkad.port)
    asker.ask("DeleteTopics", 5, {"topic_names": [topic], "timeout_ms": 30_000})
    asker.client.close()
