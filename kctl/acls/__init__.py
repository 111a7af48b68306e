"""`kctl acls`."""

from kctl.command.noun import Noun

acls = Noun(
    "acls",
    {
        "list": ("kctl.acls.list:list_acls", "List ACLs."),
        "add": ("kctl.acls.add:add", "Allow or deny operations on resources to principals."),
        "remove": ("kctl.acls.remove:remove", "Remove the ACLs that match."),
        "check": ("kctl.acls.check:check", "Check whether a principal is allowed an operation, and which ACL decides."),
    },
    help="Manage access control lists.",
)
