"""Incidents: their life, and who is told what of them, and when. Pure."""
