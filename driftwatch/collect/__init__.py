"""Sources in, one Polars schema out: the only stage that reads the outside."""
