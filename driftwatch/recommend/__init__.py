"""From traffic rebuilt and replayed to one change, or to an honest no. Pure."""
