"""Fakes of the wire formats, and real servers in folders of their own, for tests and bench."""
