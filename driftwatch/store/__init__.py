"""What survives a restart: incidents, deliveries, silences, stored scrapes."""
