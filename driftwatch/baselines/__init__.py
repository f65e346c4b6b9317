"""Baselines: candidates, proposals, how one is made, and which are in force."""
