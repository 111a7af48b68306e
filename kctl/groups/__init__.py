"""`kctl groups`."""

from kctl.command.noun import Noun

groups = Noun(
    "groups",
    {
        "list": ("kctl.groups.list:list_groups", "List groups with their state and lag."),
        "describe": ("kctl.groups.describe:describe_groups", "Show a group's members and how far it has read."),
        "lag": ("kctl.groups.lag:lag", "Show lag; with --watch how fast it grows or shrinks."),
        "rebalance": (
            "kctl.groups.rebalance:rebalance",
            "Say who holds up a rebalance, or make members join again.",
        ),
        "members": ("kctl.groups.members:group_members", "List the members of groups, and what each reads."),
        "reset-offsets": (
            "kctl.groups.reset_offsets:reset_offsets",
            "Move the committed offsets of empty groups.",
        ),
        "delete": ("kctl.groups.delete:delete_groups", "Delete groups that have no members, with their offsets."),
        "delete-offsets": (
            "kctl.groups.delete_offsets:delete_offsets",
            "Make a group forget where it stood in topics.",
        ),
        "clone": ("kctl.groups.clone:clone_group", "Give a group the offsets of another."),
        "zookeeper": (
            "kctl.groups.zookeeper:zookeeper_groups",
            "Show old groups, whose offsets and members are in ZooKeeper.",
        ),
        "export": ("kctl.groups.export:export_offsets", "Print committed offsets as Kafka's CSV."),
    },
    help="Show, rewind, rebalance and delete consumer groups.",
)
