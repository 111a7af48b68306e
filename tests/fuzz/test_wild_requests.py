"""Well-formed requests with values that make no sense get a well-formed answer, every API in every version."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkad.api.routes import ROUTES, Route
from kafkad.wire import apis
from kafkad.wire.messages.metadata import MetadataRequest
from tests.fuzz.running import PRODUCE, RunningBroker, framed, hurried, request, sentinel
from tests.fuzz.wild import Wild

_FEW = settings(max_examples=6, deadline=None, database=None, suppress_health_check=list(HealthCheck))
BUDGETS = [
    pytest.param(_FEW, id="few"),
    pytest.param(settings(_FEW, max_examples=20), id="some", marks=pytest.mark.slow),
    pytest.param(settings(_FEW, max_examples=200), id="many", marks=[pytest.mark.long, pytest.mark.timeout(600)]),
]


CLOSES = frozenset({PRODUCE, 29, 30, 31})
"""As Kafka, which takes the number of an unknown kind of ACL for a request that cannot be read."""


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_any_values(broker: RunningBroker, route: Route, budget: settings) -> None:
    found = broker.converse(framed(request(MetadataRequest(topics=None), 12)), sentinel()).answers[0].message
    wild = Wild(broker.directories, [topic.topic_id for topic in found.topics[:5]])
    cls = apis.request_class(route.key)

    @budget
    @given(st.data())
    def converse(data: st.DataObject) -> None:
        version = data.draw(st.integers(route.first, route.last))
        asking = [
            hurried(request(message, version, number))
            for number, message in enumerate(data.draw(st.lists(wild.message(cls, version), min_size=1, max_size=2)))
        ]
        talk = broker.converse(*map(framed, asking), sentinel())
        assert talk.survived or route.key in CLOSES, "closed"

    converse()
