"""The witness: watches a run from outside and shows sightings to the checkers."""
