"""From scrapes to minute rows: the only package that knows about scrapes."""
