"""The checks of produced batches before a byte is written, and the batches as they are then stored."""
