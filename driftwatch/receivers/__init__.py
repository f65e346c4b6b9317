"""Receivers: each takes pages to one service of the outside."""
