"""`kctl groups`."""

from kctl.lazy import Noun

groups = Noun(
    "groups",
    {
        "list": ("kctl.groups.list:list_groups", "List groups with their state and lag."),
        "describe": ("kctl.groups.describe:describe_groups", "Show a group's members and how far it has read."),
        "lag": ("kctl.groups.lag:lag", "Show lag; with --watch how fast it grows or shrinks."),
        "members": ("kctl.groups.members:group_members", "List the members of groups, and what each reads."),
    },
    help="Show, rewind, rebalance and delete consumer groups.",
)
