"""What every command of kctl is made of: options, help, names of things, confirmation, --watch, completion."""
