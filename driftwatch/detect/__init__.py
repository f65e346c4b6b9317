"""Detectors: :func:`driftwatch.detect.score.score` each minute,
:func:`driftwatch.detect.learn.learn` at full hours. Both are pure.
"""
