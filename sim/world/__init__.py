"""The world of a run: time, clocks, links, named random streams and the trace."""
