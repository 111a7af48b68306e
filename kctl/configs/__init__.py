"""`kctl configs`."""

from kctl.command.noun import Noun

configs = Noun(
    "configs",
    {
        "describe": ("kctl.configs.describe:describe", "Show settings with their source."),
        "set": ("kctl.configs.change:set_configs", "Change settings, leaving all others as they are."),
        "unset": ("kctl.configs.change:unset", "Reset settings to their defaults."),
        "diff": ("kctl.configs.diff:diff", "Compare the settings of two resources, or of one with a file."),
    },
    help="Show, change and compare settings of topics, brokers, groups, users and clients.",
)
