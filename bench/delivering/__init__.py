"""Cases for ``bench/calibrate.py``: recorded GPU runs, recorded CPU runs, hidden engines."""
