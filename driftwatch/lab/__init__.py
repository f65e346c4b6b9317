"""Before there is traffic: plan, sweep, batchers compared. The paging core imports none of it."""
