"""Closed-form values of one knob. Pure."""
