"""The start-up of a log: it makes sound whatever a crash left, before the first append."""
