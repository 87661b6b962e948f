"""The producer, the consumer and the admin client as cores without I/O, which a shell or the simulator runs."""
