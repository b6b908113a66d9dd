"""Patience: how long a test waits for what has to happen before it says that it did not.

Such a bound ends only a test that fails anyway, so a long one costs nothing, and a short one fails on a loaded machine.
"""

#: Shorter than pytest's own time-out: the test itself says what it waited for.
PATIENCE_S = 300.0

#: How many times as long as on an idle machine something may take where others use its CPUs.
LOADED = 4.0
