"""One tick, from scrapes to pages; and explain, which evaluates a window of the past alike."""
