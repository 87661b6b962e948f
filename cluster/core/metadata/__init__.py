"""What a cluster knows of itself: the records of the metadata log and the image they add up to."""
