"""Rounds of a service that is killed: what arrives, against what the promises say."""
