"""The replicated cluster: a core without I/O (roles, fetch, high watermark, ISR, epochs) and its gRPC shell."""

import logging

# A program that sets up no logging gets no lines of ours on its standard error.
logging.getLogger(__name__).addHandler(logging.NullHandler())
