"""`kctl partitions`: where replicas are, and moving them."""

from kctl.command.noun import Noun

partitions = Noun(
    "partitions",
    {
        "list": ("kctl.partitions.list:list_partitions", "List partitions with their replicas, health and size."),
        "plan": ("kctl.partitions.plan:plan_moves", "Plan which replicas move, and write the plan to a file."),
        "drain": ("kctl.partitions.plan:drain", "Plan how to empty brokers."),
        "apply": ("kctl.partitions.apply:apply", "Carry out a plan, and watch it."),
        "status": (
            "kctl.partitions.status:status",
            "Show moves under way, whoever began them, and left-over throttles.",
        ),
        "cancel": (
            "kctl.partitions.cancel:cancel",
            "Cancel moves: their partitions return to the replicas they had.",
        ),
        "reassign": ("kctl.partitions.reassign:reassign", "Give single partitions the replicas that you name."),
        "elect": (
            "kctl.partitions.elect:elect",
            "Have partitions elect their preferred leaders, or any leader at all.",
        ),
        "move-dir": (
            "kctl.partitions.reassign:move_dir",
            "Move replicas to another log directory of their broker.",
        ),
        "throttle": ("kctl.partitions.throttle:throttle", "Show, set or clear the throttles of moves."),
    },
    help="See where replicas are, and move them.",
)
