"""`kctl groups`."""

from kctl.command.noun import Noun

groups = Noun(
    "groups",
    {
        "list": ("kctl.groups.list:list_groups", "List groups with their state and lag."),
        "describe": (
            "kctl.groups.describe:describe_groups",
            "Show a group's members and its position in each partition.",
        ),
        "lag": ("kctl.groups.lag:lag", "Show lag; with --watch how fast it grows or shrinks."),
        "rebalance": (
            "kctl.groups.rebalance:rebalance",
            "Show who holds up a rebalance, or make members rejoin.",
        ),
        "members": ("kctl.groups.members:group_members", "List the members of groups, and what each reads."),
        "reset-offsets": (
            "kctl.groups.reset_offsets:reset_offsets",
            "Move the committed offsets of empty groups.",
        ),
        "delete": ("kctl.groups.delete:delete_groups", "Delete empty groups with their offsets."),
        "delete-offsets": (
            "kctl.groups.delete_offsets:delete_offsets",
            "Delete a group's committed offsets of topics.",
        ),
        "clone": ("kctl.groups.clone:clone_group", "Copy the committed offsets of a group to another one."),
        "zookeeper": (
            "kctl.groups.zookeeper:zookeeper_groups",
            "Show old groups that keep offsets and members in ZooKeeper.",
        ),
        "export": ("kctl.groups.export:export_offsets", "Print committed offsets in Kafka's CSV format."),
    },
    help="Show, reset, rebalance and delete consumer groups.",
)
