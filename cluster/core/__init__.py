"""What decides: events and the time in, effects out; no I/O, clock or randomness of its own."""
