"""driftwatch: has a vLLM fleet's effective batch drifted from what it was tuned for, and why?"""

__version__ = "0.20.0"
