"""The segment store: Kafka's bytes on a `FileSystem` port; no network, clock, thread or randomness of its own."""
