"""A scenario as data, its file, and what does not fit together in it."""
