"""The tree as data and the limits model. Pure."""
