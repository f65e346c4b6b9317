"""Detectors: :func:`driftwatch.detect.learn.learn` seldom, :func:`driftwatch.detect.score.score`
each minute. Both are pure.
"""
