"""Idempotent producers and their transactions, as one log knows them."""
