"""A page of a portal, and a button that suspends or resumes a vjob: python3 portal.py [JOBID].

It runs as a user of the cluster. RMSPLUGIN_CONFIG names the settings, if they are not in their usual place.
"""

import sys
from collections.abc import Iterator

from rmsplugin.api.binding import Engine
from rmsplugin.errors import RmspluginError


def page(engine: Engine, pressed: list[str]) -> Iterator[str]:
    for job in pressed:
        press = engine.suspend if engine.vjob(job)["state"] == "running" else engine.resume
        operation = engine.wait(press(job))
        yield f"{operation['kind']} of {job}: {operation['error'] or operation['state']}"
    for node in engine.nodes():
        memory = f"{node['memory_used_mib']} of {node['memory_mib']} MiB"
        yield f"{node['name']}: {node['cpus_used']:g} of {node['cpus']:g} CPUs, {memory}, {node['vms']} VMs"
    for vjob in engine.vjobs():
        yield f"{vjob['display_id']} of {vjob['user']} is {vjob['state']} on {','.join(vjob['nodes']) or '-'}"


try:
    for line in page(Engine.of_site(), sys.argv[1:]):
        print(line)
except RmspluginError as error:
    sys.exit(f"portal: {error} (status {error.status})")
