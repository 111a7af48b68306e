"""`kctl contexts`: clusters by name, with how to reach them and as whom."""

from kctl.command.noun import Noun

contexts = Noun(
    "contexts",
    {
        "list": ("kctl.contexts.list:list_contexts", "List the contexts."),
        "show": ("kctl.contexts.show:show", "Print what a context says, without its secrets."),
        "use": ("kctl.contexts.use:use", "Make a context the current one."),
        "set": ("kctl.contexts.set:set_fields", "Make a context, or change what it says."),
        "delete": ("kctl.contexts.delete:delete", "Delete a context."),
        "import": ("kctl.contexts.importing:import_properties", "Make a context of a Kafka client's .properties."),
        "test": ("kctl.contexts.test:test", "Connect and log in step by step, and time each step."),
    },
    help="Name clusters, and say how they are reached.",
)
