"""`kctl raw`: any request there is, for whom the other commands are not enough."""

from __future__ import annotations

import sys
from typing import Any

import click

from kafkad.wire.apis import APIS, request_class
from kctl.command.changes import confirm_typed
from kctl.command.cluster_names import broker_ids
from kctl.command.verb import KctlCommand, pass_session
from kctl.errors import Exit, KctlError, did_you_mean
from kctl.reach.connection import only_reads
from kctl.reach.session import Session
from kctl.texts.documents import read_json
from kctl.texts.output import keep_writing, print_lines
from kctl.texts.parsing import LARGEST_INT16, whole_number


def _names(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    return sorted(api.name for api in APIS.values() if api.name.startswith(incomplete))


@click.command("raw", cls=KctlCommand)
@click.argument("api", metavar="API", shell_complete=_names)
@click.argument("fields", metavar="[JSON|-]", default="{}")
@click.option(
    "--broker",
    type=int,
    metavar="ID",
    shell_complete=broker_ids,
    help="The broker to ask.  [default: any; the controller for changes]",
)
@click.option(
    "--api-version",
    type=click.IntRange(0, LARGEST_INT16),
    metavar="N",
    help="The version to ask in.  [default: the highest common one]",
)
@pass_session
def raw(session: Session, api: str, fields: str, broker: int | None, api_version: int | None) -> int:
    """Send any request, given as JSON, and print the answer.

    Fields are named as in Kafka's protocol, in snake_case; omitted fields have their defaults. Bytes are written as
    {"base64": "…"}. The answer is printed in full, as JSON; an error code in it does not make the command fail.

    Example: kctl raw Metadata '{"topics": [{"name": "orders"}]}'
    """
    import json

    if session.settings.output in ("csv", "name"):
        what = f"kctl raw prints an answer as it is, in JSON, and has no -o {session.settings.output}"
        raise KctlError(what, exit_code=Exit.USAGE, hints=("leave -o out",))
    key = _key(api)
    try:
        given = read_json(sys.stdin.read() if fields == "-" else fields)
    except ValueError as error:
        raise KctlError(f"the request is not JSON: {error}", exit_code=Exit.USAGE) from None
    request = from_json(request_class(key), given, APIS[key].name)
    if not session.settings.yes and not only_reads(key):
        what = f"{APIS[key].name} may change the cluster, and kctl cannot show its effect"
        raise KctlError(what, exit_code=Exit.REFUSED, hints=("-y sends it",))
    if session.settings.dry_run:
        print_lines((json.dumps(to_json(request), ensure_ascii=False, indent=2),))
        return Exit.DONE
    if not only_reads(key):
        keep_writing()
    if session.access.protected and not only_reads(key):
        label = session.access.label
        confirm_typed(f"{APIS[key].name} may change {label}, which is protected.", label)
    if broker is None and not only_reads(key):
        broker = session.controller
    connection = session.connection(broker)
    response = session.exchange(connection, request, api_version)
    if not only_reads(key):
        session.settings.changed = f"{APIS[key].name} was answered"
    print_lines((json.dumps(to_json(response), ensure_ascii=False, indent=2),))
    return Exit.DONE


def _key(api: str) -> int:
    if (number := whole_number(api)) in APIS:
        return number
    by_name = {known.name.lower(): key for key, known in APIS.items()}
    if (key := by_name.get(api.lower())) is not None:
        return key
    names = [known.name for known in APIS.values()]
    raise KctlError(f'there is no API "{api}"', exit_code=Exit.USAGE, hints=did_you_mean(api, names))


def from_json(cls: type[Any], given: Any, where: str) -> Any:
    """A message of what JSON says. KctlError names the field that is wrong."""
    if not isinstance(given, dict):
        raise KctlError(f"{where} must be an object, not {given!r}", exit_code=Exit.USAGE)
    fields = {field.name: field for field in cls.__schema__.fields}
    for name in given:
        if name not in fields:
            hints = did_you_mean(name, list(fields)) or (f"there are: {', '.join(fields)}",)
            raise KctlError(f'{where} has no field "{name}"', exit_code=Exit.USAGE, hints=hints)
    return cls(**{name: _value(fields[name], value, f"{where}.{name}") for name, value in given.items()})


def _value(field: Any, value: Any, where: str) -> Any:
    if isinstance(value, dict) and set(value) == {"base64"}:
        from base64 import b64decode

        try:
            return b64decode(value["base64"], validate=True)
        except (TypeError, ValueError):
            raise KctlError(f"{where} is not base64", exit_code=Exit.USAGE) from None
    if field.kind == "array" and not isinstance(value, list) and value is not None:
        raise KctlError(f"{where} must be a list, not {value!r}", exit_code=Exit.USAGE)
    if isinstance(value, list) and field.item is not None and hasattr(field.item, "__schema__"):
        return [from_json(field.item, item, f"{where}[{at}]") for at, item in enumerate(value)]
    if isinstance(value, dict) and field.item is not None and hasattr(field.item, "__schema__"):
        return from_json(field.item, value, where)
    return value


def to_json(value: Any) -> Any:
    """A message as JSON has it."""
    if hasattr(value, "__schema__"):
        return {field.name: to_json(getattr(value, field.name)) for field in value.__schema__.fields}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        from base64 import b64encode

        return {"base64": b64encode(value).decode()}
    return value
