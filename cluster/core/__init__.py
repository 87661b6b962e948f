"""The part that decides: it takes events and the time, and returns effects; it has no I/O, clock or randomness."""
