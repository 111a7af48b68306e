"""Topics that are written exactly once need a cluster that has transactions."""

from __future__ import annotations

from typing import Any

import pytest

from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.planning.writing import need_transactions


class Session:
    def __init__(self, *lacking: str) -> None:
        self._lacking = lacking

    def version_of(self, request: type[Any]) -> int | None:
        return None if request.__name__.removesuffix("Request") in self._lacking else 0


def test_a_cluster_without_transactions_is_refused_with_what_it_lacks() -> None:
    session: Any = Session("EndTxn", "TxnOffsetCommit")
    with pytest.raises(EtlError) as error:
        need_transactions(session, "out", "kafka-1:9092")
    assert (error.value.exit_code, error.value.key) == (EtlExit.CLUSTER, "sink.topic.delivery")
    assert error.value.what == (
        'sink.topic.delivery: the cluster of topic "out", kafka-1:9092, has no transactions: '
        "it does not serve TxnOffsetCommit, EndTxn"
    )
    whole: Any = Session()
    need_transactions(whole, "out", "kafka-1:9092")
