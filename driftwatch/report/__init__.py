"""The weekly report: what drifted, what it cost, what was done, whether it worked."""
