"""Each request says to type checkers which message answers it: the one of its own API."""

from __future__ import annotations

import inspect

import pytest

from kafkad.wire.apis import APIS, Api, request_class


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_a_request_names_its_own_response(api: Api) -> None:
    module = inspect.getmodule(request_class(api.key))
    assert module is not None
    assert f'class {api.name}Request(Request["{api.name}Response"]):' in inspect.getsource(module)
