"""The segment store: Kafka's bytes on a `FileSystem` port; no network, no clock, no thread, no randomness of its own."""
