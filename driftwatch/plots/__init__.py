"""Small drawings by hand, for the web and the weekly report."""
