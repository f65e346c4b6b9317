"""Length drift: scores against contexts, peers and the pin, in units of what is usual."""
