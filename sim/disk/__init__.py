"""The simulated disk, a `FileSystem`: it knows what a crash or a power loss leaves of each file."""

from sim.disk.disk import SimDisk
from sim.disk.faults import Applied
from sim.disk.handles import SimFile, SimFileSystem
from sim.disk.survival import PowerLoss, Tear

__all__ = [
    "Applied",
    "PowerLoss",
    "SimDisk",
    "SimFile",
    "SimFileSystem",
    "Tear",
]
