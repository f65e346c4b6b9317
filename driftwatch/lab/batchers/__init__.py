"""The classic batchers on one clock: static, dynamic, continuous, hybrid, back-pressure.

Each is a pure function of requests and a step-time model, and returns the columns of
``Outcome.requests``. KV memory never binds in the classic ones; vLLM's scheduler with its blocks
is ``driftwatch.simulate.engine``. Defined in docs/decisions/0013-the-classic-batchers.md.
"""
