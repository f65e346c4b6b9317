"""Tools for the time before traffic: plan, sweep, compare. The paging core imports none of it."""
