"""The job wrapper: the interpreter that Slurm runs on the batch host in place of the user's script.

Slurm starts ``main``. It becomes ``attach``, which stays for as long as the job does. A front has up to a
thousand of those, so their imports are counted (tests/unit/wrapper/test_wrapper_weight.py). Work that needs more
imports happens in ``main``, before, or in ``prepare`` and ``carry_out``, processes that end.
"""

#: Directory of our tools in the guest.
TOOLS = "/run/rmsplugin/bin"
