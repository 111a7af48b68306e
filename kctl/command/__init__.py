"""The common parts of all commands: options, help, names of things, confirmation, --watch, completion."""
