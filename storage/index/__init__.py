"""The indexes of a segment: offsets, timestamps and aborted transactions."""
