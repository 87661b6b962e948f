"""The commands that talk to a cluster or start one."""
