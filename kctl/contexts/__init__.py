"""`kctl contexts`: clusters by name, with how to reach them and as whom."""

from kctl.command.noun import Noun

contexts = Noun(
    "contexts",
    {
        "list": ("kctl.contexts.list:list_contexts", "List the contexts."),
        "show": ("kctl.contexts.show:show", "Show a context without its secrets."),
        "use": ("kctl.contexts.use:use", "Make a context the current one."),
        "set": ("kctl.contexts.set:set_fields", "Create or change a context."),
        "delete": ("kctl.contexts.delete:delete", "Delete a context."),
        "import": (
            "kctl.contexts.importing:import_properties",
            "Create a context from a Kafka client's .properties file.",
        ),
        "test": ("kctl.contexts.test:test", "Connect and log in step by step, timing each step."),
    },
    help="Manage named clusters and how to reach them.",
)
