"""A simulated fleet: scrapes and GPU readings of servers whose engine and faults are known."""
