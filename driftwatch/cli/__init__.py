"""Commands, one file per verb; imports are lazy so that --help is fast."""
