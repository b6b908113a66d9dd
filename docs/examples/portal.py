"""A page of a portal: the cluster, its vjobs, and a button that suspends or resumes one of them.

    python3 portal.py [--config FILE] [JOBID]

It runs as a user of the cluster on a login host or on the controller. With JOBID it presses the button first.
"""

import argparse

from rmsplugin.api.answers import Node, VJob
from rmsplugin.api.binding import Engine
from rmsplugin.errors import RmspluginError


def line_of_node(node: Node) -> str:
    memory = f"{node['memory_used_mib']} of {node['memory_mib']} MiB"
    return f"{node['name']}: {node['cpus_used']:g} of {node['cpus']:g} CPUs, {memory}, {node['vms']} VMs"


def line_of_vjob(vjob: VJob) -> str:
    return f"{vjob['display_id']} of {vjob['user']} is {vjob['state']} on {','.join(vjob['nodes']) or '-'}"


def press_button(engine: Engine, job: str) -> str:
    runs = engine.vjob(job)["state"] == "running"
    operation = engine.wait(engine.suspend(job) if runs else engine.resume(job))
    return f"{operation['kind']} of {job}: {operation['error'] or operation['state']}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", help="the settings of rmsplugin, if not in their usual place")
    parser.add_argument("job", nargs="?", help="suspend this vjob, or resume it")
    arguments = parser.parse_args()
    try:
        engine = Engine.of_site(arguments.config)
        lines = [press_button(engine, arguments.job)] if arguments.job else []
        lines += [*map(line_of_node, engine.nodes()), *map(line_of_vjob, engine.vjobs())]
    except RmspluginError as error:
        print(f"portal: {error} (status {error.status})")
        return 1
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
