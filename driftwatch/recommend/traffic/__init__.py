"""What a server was asked and did in a window: arrivals to simulate, observations to fit."""
