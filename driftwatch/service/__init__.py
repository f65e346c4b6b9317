"""One tick, and what calls it on a schedule."""
