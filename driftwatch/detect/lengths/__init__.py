"""Length drift: scores against contexts, peers and the baseline, in units of what is usual."""
