"""The machines of a run: nodes and clients, and what each of them did."""
