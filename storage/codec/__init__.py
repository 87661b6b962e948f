"""Encodings below the batch: checksums, numbers, text and compression."""
