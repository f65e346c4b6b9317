"""Length drift: scores against contexts, twins and the pin, in units of what is usual."""
