"""Tests of rules: evidence, a scenario or a recording in; alerts, leaf, advice and line 1 out."""
