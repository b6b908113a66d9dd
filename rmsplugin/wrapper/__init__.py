"""The job wrapper: the interpreter that Slurm runs on the batch host in place of the user's script."""

import sys

# paramiko imports this package, if it can, for a function that is not used here: a tenth of the wrapper's memory, and a
# fifth of the time until it is up. A batch host may have hundreds of wrappers.
sys.modules.setdefault("invoke", None)  # type: ignore[arg-type]
