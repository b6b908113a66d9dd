"""The job wrapper: the interpreter that Slurm runs on the batch host in place of the user's script.

``main`` is what Slurm starts. It becomes ``attach``, which stays for as long as the job does: a front has up to a
thousand of those, so that what it imports is counted (tests/unit/test_wrapper_weight.py). What needs more than that
happens in ``main``, before, or in ``prepare`` and ``carry_out``, processes that end.
"""

#: Directory of our tools in the guest.
TOOLS = "/run/rmsplugin/bin"
