"""Did a change work? Matched traffic before and after it. Pure."""
