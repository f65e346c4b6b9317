"""Advice against hidden truths: random cases, what is shown of them, what would have come."""
