"""The segment store: Kafka's bytes on a `FileSystem` port; no network, clock, thread or randomness of its own."""

import logging

# A program that sets up no logging gets no lines of ours on its standard error.
logging.getLogger(__name__).addHandler(logging.NullHandler())
