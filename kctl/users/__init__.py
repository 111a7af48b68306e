"""`kctl users`."""

from kctl.command.noun import Noun

users = Noun(
    "users",
    {
        "list": ("kctl.users.list:list_users", "List users with SCRAM credentials."),
        "set-scram": ("kctl.users.set_scram:set_scram", "Set the password with which a user logs in by SCRAM."),
        "delete": ("kctl.users.delete:delete", "Delete SCRAM credentials of users."),
    },
    help="List users with SCRAM credentials, set and delete them.",
)
