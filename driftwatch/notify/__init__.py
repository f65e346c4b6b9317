"""Incident life cycle and page planning (pure), rendering, senders."""
