"""Baselines: what can be one, how one is made, and the baselines that are in force."""
