"""`kctl acls`."""

from kctl.command.noun import Noun

acls = Noun(
    "acls",
    {
        "list": ("kctl.acls.list:list_acls", "List who may do what."),
        "add": ("kctl.acls.add:add", "Allow or deny principals operations on resources."),
        "remove": ("kctl.acls.remove:remove", "Remove the ACLs that match."),
        "check": ("kctl.acls.check:check", "Say whether a principal may do something, and which ACL decides."),
    },
    help="Say who may do what.",
)
