"""The step-time model of a server, fitted by simulating its traffic through the scheduler."""
