"""Tests of rules: evidence or a recording in; alerts, leaf and line 1 out."""
