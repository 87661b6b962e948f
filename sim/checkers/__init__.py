"""One class a rule, watching from outside. `deterministic simulation` numbers stand in each class's docstring."""
