"""The start-up of a log: whatever a crash left is made sound before the first append."""
