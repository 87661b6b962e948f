"""What must hold before a byte is written, and the batch as it is then stored."""
