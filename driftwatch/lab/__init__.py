"""Tools for the time before traffic: plan, simulate, compare. Paging imports none of it."""
