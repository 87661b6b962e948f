"""All kinds of faults that a plan is drawn from, by name."""

from __future__ import annotations

from collections.abc import Mapping

from sim.swarm.plans.chains import CHAINS
from sim.swarm.plans.controller import CONTROLLER
from sim.swarm.plans.damage import DAMAGE
from sim.swarm.plans.disks import DISKS
from sim.swarm.plans.ground import Fault
from sim.swarm.plans.isr_chains import ISR_CHAINS
from sim.swarm.plans.links import LINKS
from sim.swarm.plans.processes import PROCESSES
from sim.swarm.plans.topics import TOPICS

FAULTS: Mapping[str, Fault] = {
    fault.name: fault
    for fault in (*PROCESSES, *DISKS, *DAMAGE, *LINKS, *TOPICS, *CHAINS, *ISR_CHAINS, *CONTROLLER)
}
