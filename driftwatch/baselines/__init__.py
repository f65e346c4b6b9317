"""Baselines: what can be pinned, how a pin is made, and the pins that are in force."""
