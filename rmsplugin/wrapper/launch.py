"""Launcher of the wrapper's programs: ``python3 -I -S launch.py attach|prepare|carry_out|stand_in ...``.

Started without ``site``, it finds this package by its own path, wherever and however the package was installed.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the program that the first argument names."""
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    program = sys.argv.pop(1)
    if program == "prepare":
        from rmsplugin.wrapper.prepare import program as prepare

        prepare.main(sys.argv)
    elif program == "carry_out":
        from rmsplugin.wrapper.carry_out import program as carry_out

        carry_out.main(sys.argv)
    elif program == "stand_in":
        from rmsplugin.wrapper import stand_in

        stand_in.main(sys.argv)
    else:
        from rmsplugin.wrapper.attach import program as attach

        attach.main(sys.argv)


if __name__ == "__main__":
    main()
