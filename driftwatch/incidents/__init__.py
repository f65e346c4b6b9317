"""Incidents, their life cycle, and their messages: to whom and when. Pure."""
