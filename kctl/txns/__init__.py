"""`kctl txns`."""

from kctl.command.noun import Noun

txns = Noun(
    "txns",
    {
        "list": ("kctl.txns.list:list_transactions", "List transactional ids with the state of their transactions."),
        "describe": ("kctl.txns.describe:describe", "Show transactions with the partitions they write to."),
        "producers": ("kctl.txns.producers:producers", "List who writes to partitions, with open transactions."),
        "hanging": ("kctl.txns.hanging:hanging", "Find transactions that nobody will ever end."),
        "abort": ("kctl.txns.abort:abort", "End a hanging transaction on a partition."),
    },
    help="Look at transactions, and end those that hang.",
)
