"""Makes a failing scenario small: it takes away whatever the failure does not need."""
