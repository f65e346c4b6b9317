"""The judge: what was injected, set against what driftwatch said; no code of the detectors.

It reads truth files, recorded counters and what the public commands print. It imports nothing of
the packages that decide (a test holds it to that).
"""
