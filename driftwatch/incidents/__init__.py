"""Incidents: their life, and who gets which message about them, and when. Pure."""
