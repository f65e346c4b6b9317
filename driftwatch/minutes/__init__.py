"""From scrapes to minute rows: the only place that knows about scrapes."""
