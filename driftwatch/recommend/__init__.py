"""Advice: one change of a server's settings, or why none. Pure."""
