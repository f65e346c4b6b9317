"""Scenarios: their model, their files, and the check of a file."""
