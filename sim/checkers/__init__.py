"""The checkers of a run: each is one rule, says it in its docstring, and watches the run from outside."""
