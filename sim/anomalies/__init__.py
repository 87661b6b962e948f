"""Names the anomalies of a client history as Jepsen's Kafka workload names them, in one pass."""
