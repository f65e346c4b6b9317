"""Baselines: what can be pinned, how a baseline is made, and the baselines that are in force."""
