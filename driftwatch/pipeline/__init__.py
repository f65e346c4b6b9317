"""One tick, from scrapes to pages; and explain, which evaluates a past window the same way."""
