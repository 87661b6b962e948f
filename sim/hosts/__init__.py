"""The machines of a run: nodes and clients, and the history of what the clients did."""
