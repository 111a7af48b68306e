"""`kctl acls check`."""

from __future__ import annotations

import click

from kctl.acls.asking import Filter, described
from kctl.acls.bindings import (
    ANY,
    ANYWHERE,
    CLUSTER_NAME,
    RESOURCES,
    Resource,
    decide,
    operation_named,
    principal_named,
)
from kctl.command.verb import KctlCommand, answer, pass_session
from kctl.errors import Exit, KctlError
from kctl.reach.session import Session
from kctl.texts.output import Column

COLUMNS = (
    Column("allowed", "yes or no; unknown: a setting decides that the brokers do not tell."),
    Column("principal", "Who."),
    Column("operation", "What."),
    Column("resource", "On which thing."),
    Column("why", "The ACL or the setting that decides."),
)


@click.command("check", cls=KctlCommand, columns=COLUMNS)
@click.argument("principal")
@click.argument("operation")
@click.argument("resource", metavar="TOPIC|TYPE/NAME")
@click.option(
    "--host", default=ANYWHERE, metavar="ADDRESS", help="The client address; without it only ACLs for all hosts count."
)
@pass_session
def check(session: Session, principal: str, operation: str, resource: str, host: str) -> int:
    """Check whether a principal is allowed an operation, and which ACL decides.

    The resource is a topic, or group/NAME, transactional-id/NAME, cluster … Decides as the authorizer does: super users
    first, then denies, then allows. Where the brokers hide super.users, as Kafka does, a no holds for all others. Exits
    with 7 if the operation is not allowed, or that cannot be known.

    Example: kctl acls check User:alice Write orders
    """
    who, what, where = principal_named(principal), operation_named(operation), _resource(resource)
    bindings = described(session, Filter(where.type, where.name, "match"))
    settings = _authorizer(session)
    named = settings.get("super.users", "")
    superusers = None if named is None else [name.strip() for name in named.split(";")]
    without = settings.get("allow.everyone.if.no.acl.found", "false")
    verdict = decide(
        bindings, who, host, what, where, superusers, None if without is None else without.lower() == "true"
    )
    found = {
        "allowed": {True: "yes", False: "no", None: "unknown"}[verdict.allowed],
        "principal": who,
        "operation": what,
        "resource": str(where),
        "why": verdict.why,
    }
    code = answer(session, COLUMNS, [found])
    return code if verdict.allowed else Exit.FINDINGS


def _resource(text: str) -> Resource:
    kind, slash, name = text.partition("/")
    if text == "cluster" or (kind == "cluster" and slash):
        return Resource("cluster", CLUSTER_NAME)
    if not slash:
        return Resource("topic", text)
    if kind not in RESOURCES or kind == ANY:
        known = ", ".join(name for name in RESOURCES if name != ANY)
        raise KctlError(f'there is no kind of resource "{kind}"', exit_code=Exit.USAGE, hints=(f"there are: {known}",))
    return Resource(kind, name)


def _authorizer(session: Session) -> dict[str, str | None]:
    """The authorizer's settings that a broker shows; None for the value of one that it hides. Kafka treats them as
    secrets, and tells only that they are set; who may not read a broker's settings is told nothing."""
    from kafkad.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

    broker = next(iter(session.cluster.brokers))
    names = ["super.users", "allow.everyone.if.no.acl.found"]
    asked = DescribeConfigsResource(resource_type=4, resource_name=str(broker), configuration_keys=names)
    response = session.call(DescribeConfigsRequest(resources=[asked]), broker)
    if any(result.error_code for result in response.results):
        return dict.fromkeys(names)
    return {config.name: config.value for result in response.results for config in result.configs}
