"""rules/*.yaml to typed rules, every value with its file:line:col."""
