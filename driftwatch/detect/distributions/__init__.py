"""How far two histograms are apart, from bucket counts alone, for many pairs at once."""
