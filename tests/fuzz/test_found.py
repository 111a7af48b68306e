"""Defects that fuzzing has found, so that they stay found."""

from __future__ import annotations

import gc

from kafkad.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafkad.wire.messages.delete_topics import DeleteTopicsRequest
from tests.fuzz.running import RunningBroker, framed, request, sentinel


def test_a_deletion_that_nobody_waits_for_leaves_no_complaint(broker: RunningBroker) -> None:
    names = ["gone-1", "gone-2"]
    create = CreateTopicsRequest(topics=[CreatableTopic(name=n, num_partitions=1, replication_factor=1) for n in names])
    delete = DeleteTopicsRequest(topic_names=names, timeout_ms=0)
    assert broker.converse(framed(request(create, 5)), framed(request(delete, 5)), sentinel()).survived
    gc.collect()
    assert broker.converse(sentinel()).survived
