"""Many nodes on one machine: `replog up`."""
