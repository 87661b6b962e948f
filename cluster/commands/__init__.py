"""What a user types: the commands that talk to a cluster or start one."""
