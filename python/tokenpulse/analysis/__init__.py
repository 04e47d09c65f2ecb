"""What counts and columns of whole runs say beyond a report's figures: where time went, and how two runs differ.

Pure functions of reductions and `Records`; nothing here reads a file or a clock.
"""
