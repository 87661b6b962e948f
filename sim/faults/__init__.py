"""What goes wrong in a run: links, disks and nodes, as a plan drawn from the seed."""
