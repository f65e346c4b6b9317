"""From traffic rebuilt and simulated to one change, or to an honest no. Pure."""
