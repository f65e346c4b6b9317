"""What the pages of a simulated server show over time, as text and as the scrape table."""
