"""The step-time law of a server, fitted by replaying its traffic through the scheduler."""
