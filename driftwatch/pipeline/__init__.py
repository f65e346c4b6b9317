"""One tick, from scrapes to pages, and what asks the same of a window of the past."""
