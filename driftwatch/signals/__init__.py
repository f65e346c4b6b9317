"""Windows over minutes: sums, histograms, GPU readings, and the columns made of them. Pure."""
