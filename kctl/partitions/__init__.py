"""`kctl partitions`: where replicas are, and moving them."""

from kctl.command.noun import Noun

partitions = Noun(
    "partitions",
    {
        "list": ("kctl.partitions.list:list_partitions", "List partitions with their replicas, health and size."),
        "plan": ("kctl.partitions.plan:plan_moves", "Plan replica moves, and write the plan to a file."),
        "drain": ("kctl.partitions.plan:drain", "Plan moving all replicas off brokers."),
        "apply": ("kctl.partitions.apply:apply", "Apply a plan, and watch its progress."),
        "status": (
            "kctl.partitions.status:status",
            "Show moves under way, whoever started them, and leftover throttles.",
        ),
        "cancel": (
            "kctl.partitions.cancel:cancel",
            "Cancel moves: partitions return to their former replicas.",
        ),
        "reassign": ("kctl.partitions.reassign:reassign", "Reassign single partitions to the replicas you name."),
        "elect": (
            "kctl.partitions.elect:elect",
            "Elect preferred leaders, or any leader at all.",
        ),
        "move-dir": (
            "kctl.partitions.reassign:move_dir",
            "Move replicas to another log directory of their broker.",
        ),
        "throttle": ("kctl.partitions.throttle:throttle", "Show, set or clear the throttles of moves."),
    },
    help="Show where replicas are, and move them.",
)
