"""The scenario file: its model, its steps, and where in the file a mistake stands."""
