"""The evidence table, the limits model and the diagnosis tree. Pure."""
