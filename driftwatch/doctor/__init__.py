"""What can fire, what cannot, and the line that fixes it."""
