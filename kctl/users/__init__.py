"""`kctl users`."""

from kctl.command.noun import Noun

users = Noun(
    "users",
    {
        "list": ("kctl.users.list:list_users", "List users with SCRAM credentials."),
        "set-scram": ("kctl.users.set_scram:set_scram", "Set a user's SCRAM password."),
        "delete": ("kctl.users.delete:delete", "Delete SCRAM credentials of users."),
    },
    help="List, set and delete the SCRAM credentials of users.",
)
