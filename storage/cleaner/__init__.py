"""The compaction of one log: which records stay, and the segments that replace the old ones."""
