"""vLLM V1's scheduler, compiled by Numba: requests and settings in tables, run in virtual time.

Read ``loop`` first (schedule, run, apply), then ``schedule`` (one call of vLLM's scheduler),
``decoding`` (how requests that only decode are counted without touching them) and ``events``.

Every function takes ``e``, the engine's own record, and ``t``, its :class:`tables.Tables`.
Importing ``loop`` imports Numba. Only ``loop.advance`` is cached: it contains all others.
``np.int64(0)`` replaces a bare 0 that is passed to a function later: Numba would compile that
function once more for the literal.
"""
