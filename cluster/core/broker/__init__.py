"""A broker: registration, its log directories, the metadata that it follows, timed work on its logs."""
