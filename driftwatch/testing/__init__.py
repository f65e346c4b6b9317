"""Shipped fakes that speak the real wire formats; only tests, bench and demo import it."""
