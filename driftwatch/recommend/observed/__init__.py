"""What a server was asked and did in a window: arrivals for a replay, observations to fit."""
