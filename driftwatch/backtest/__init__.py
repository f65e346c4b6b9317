"""Rules over history: evidence computed once and kept, any number of rule sets over it."""
