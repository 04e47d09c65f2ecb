"""When a figure is worth waking somebody for: rules over figures, a state machine in time, and the trend of a queue.

`trend` has the Mann-Kendall test and the Theil-Sen slope, `growth` what a queue that grows without pause is, `rules`
the settings, `machine` how a condition becomes an alert and ceases to be one, `evaluation` all of it over one meter's
figures. Pure: no file, no clock, no meter.
"""
