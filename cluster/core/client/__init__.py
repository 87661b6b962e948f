"""The producer, the consumer and the admin, as cores that a shell or the simulator runs."""
