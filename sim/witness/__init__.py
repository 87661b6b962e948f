"""What watches a run from outside and hands sightings to the checkers."""
