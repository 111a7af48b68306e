"""`kctl quotas`."""

from kctl.command.noun import Noun

quotas = Noun(
    "quotas",
    {
        "list": ("kctl.quotas.list:list_quotas", "List quotas of users, clients and addresses."),
        "describe": (
            "kctl.quotas.describe:describe",
            "Show the quotas that are set for a user and client, or that apply.",
        ),
        "set": ("kctl.quotas.set:set_quotas", "Set quotas of a user, client or address."),
        "unset": ("kctl.quotas.set:unset_quotas", "Remove quotas of a user, client or address."),
    },
    help="Show and set quotas of users, clients and addresses.",
)
