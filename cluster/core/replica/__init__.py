"""A broker's replicas: leader and follower, fetch and produce, in-sync sets, truncation."""
