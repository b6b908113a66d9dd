"""Defaults that more than one program has: settings, hooks, wrapper and node agent.

Hooks, wrapper and node agent read the settings without ``rmsplugin.settings``, which takes half a second to import.
Nothing is imported here.
"""

CONFIG = "/etc/rmsplugin/rmsplugin.toml"
SOCKET = "/run/rmsplugin/engine.sock"
USER = "slurm"
PROLOG_WAIT_S = 120.0
STORE = "/var/lib/rmsplugin/store"
PLATFORM = "libvirt"
GROUPS_DIR = "groups"
#: In the environment of the process with which a room ends, and of no other.
ROOM_MARK = "RMSPLUGIN_ROOM=1"
