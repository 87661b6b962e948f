"""The scenario file: its model, its steps, and the lines of its mistakes."""
