"""`kctl txns`."""

from kctl.command.noun import Noun

txns = Noun(
    "txns",
    {
        "list": ("kctl.txns.list:list_transactions", "List transactional ids with the state of their transactions."),
        "describe": (
            "kctl.txns.describe:describe",
            "Show transactions, the partitions they write to, and what they wait for.",
        ),
        "producers": (
            "kctl.txns.producers:producers",
            "List the producers of partitions, with their open transactions.",
        ),
        "hanging": ("kctl.txns.hanging:hanging", "Find hanging transactions, which nothing will ever end."),
        "end": ("kctl.txns.end:end", "Abort the open transactions of producers that are gone."),
        "abort": ("kctl.txns.abort:abort", "Abort a hanging transaction on a partition."),
    },
    help="Show transactions, and end those that nobody else ends.",
)
