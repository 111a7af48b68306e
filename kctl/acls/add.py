"""`kctl acls add`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from kctl.acls.asking import COLUMNS, Meant, acl_failure, bindings_of, in_force, meaning, row
from kctl.acls.bindings import CLUSTER_NAME, OPERATIONS, PATTERNS, PERMISSIONS, RESOURCES, Binding, Resource, removing
from kctl.command.changes import Change
from kctl.command.verb import KctlCommand, pass_session
from kctl.errors import Exit, KctlError
from kctl.reach.session import Session
from kctl.texts.output import counted, note
from kctl.texts.spelling import spelled


@click.command("add", cls=KctlCommand, columns=COLUMNS)
@meaning
@click.option("--producer", is_flag=True, help="Everything a producer needs on the topics and transactional ids.")
@click.option("--consumer", is_flag=True, help="Everything a consumer needs on the topics and groups.")
@click.option("--idempotent", is_flag=True, help="With --producer: IdempotentWrite on the cluster too.")
@pass_session
def add(session: Session, meant: Meant, producer: bool, consumer: bool, idempotent: bool) -> int:
    """Allow or deny operations on resources to principals.

    Example: kctl acls add --allow User:alice --producer --topic orders
    """
    if not (meant.allow or meant.deny):
        raise KctlError("nobody is named", exit_code=Exit.USAGE, hints=("--allow User:alice or --deny User:alice",))
    if producer or consumer or idempotent:
        operations = list(_bundle(meant, producer, consumer, idempotent))
    elif meant.resources:
        operations = [(resource, name) for resource in meant.resources for name in meant.operations or ("All",)]
    else:
        operations = []
    if not operations:
        raise KctlError("no resource is named", exit_code=Exit.USAGE, hints=("--topic, --group, --cluster …",))
    there = in_force(session)
    wanted = list(dict.fromkeys(bindings_of(meant, operations)))
    new = [binding for binding in wanted if binding not in there]
    if len(new) < len(wanted):
        note(session.settings, f"{len(wanted) - len(new)} of them are there already")
    change = Change(session, COLUMNS, map(row, new))
    if not new:
        return change.done()
    if not change.confirmed(f"Add {counted(len(new), 'ACL')}?", only_adds=True):
        return Exit.DONE
    refused = _create(session, new)
    made = [binding for binding in new if binding not in refused]
    return change.done(
        map(row, made),
        list(refused.values()),
        verified=f"{counted(len(new), 'ACL')} in force",
        seen=lambda: set(new) <= in_force(session),
        undo=spelled(session.settings, *removing(made, there)),
    )


def _bundle(meant: Meant, producer: bool, consumer: bool, idempotent: bool) -> Iterator[tuple[Resource, str]]:
    """The ACLs that Kafka's tool adds for --producer, --consumer and --idempotent."""
    of = {kind: [r for r in meant.resources if r.type == kind] for kind in ("topic", "group", "transactional-id")}
    if consumer and not of["group"]:
        raise KctlError("a consumer needs a group", exit_code=Exit.USAGE, hints=("--group NAME, or --group '*'",))
    if (producer or consumer) and not of["topic"]:
        raise KctlError("no topic is named", exit_code=Exit.USAGE, hints=("--topic NAME",))
    if producer:
        yield from ((topic, name) for topic in of["topic"] for name in ("Write", "Describe", "Create"))
        yield from ((user, name) for user in of["transactional-id"] for name in ("Write", "Describe"))
    if idempotent:
        yield Resource("cluster", CLUSTER_NAME), "IdempotentWrite"
    if consumer:
        yield from ((topic, name) for topic in of["topic"] for name in ("Read", "Describe"))
        yield from ((group, "Read") for group in of["group"])


def _create(session: Session, bindings: Sequence[Binding]) -> dict[Binding, KctlError]:
    """Those that were refused, and why."""
    from kafkad.wire.messages.create_acls import AclCreation, CreateAclsRequest

    creations = [
        AclCreation(
            resource_type=RESOURCES[binding.resource.type],
            resource_name=binding.resource.name,
            resource_pattern_type=PATTERNS[binding.resource.pattern],
            principal=binding.principal,
            host=binding.host,
            operation=OPERATIONS[binding.operation],
            permission_type=PERMISSIONS[binding.permission],
        )
        for binding in bindings
    ]
    results = session.call(CreateAclsRequest(creations=creations)).results
    return {
        binding: acl_failure(result.error_code, f"not added: {binding}", result.error_message)
        for binding, result in zip(bindings, results, strict=True)
        if result.error_code
    }
