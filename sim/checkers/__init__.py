"""The rules of a run, one class each, watching from outside. A class's docstring opens with its rule's number."""
