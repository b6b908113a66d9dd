#!/bin/sh
# In the place of the host key is a pipe at first, at which the server waits until there is a key; without any, there is no file.
[ -e /etc/dropbear/dropbear_ed25519_host_key ] || exec sleep 1000000
# The script's own limits, those of its submission, may be above the kernel's first ones.
# shellcheck disable=SC3045 # busybox has these
ulimit -H -n 1048576 && ulimit -H -l unlimited && ulimit -H -u unlimited
# By a name that is no path, for it would start itself anew for each connection, which takes an emulated guest 50 ms.
# -F: in the foreground, -E: log to the console, -s: no passwords, -j -k: no forwarding, -W: receive window.
# shellcheck disable=SC3038 # busybox has -a
exec -a dropbear /usr/bin/dropbear -F -E -s -j -k -p 22 -W 262144 -r /etc/dropbear/dropbear_ed25519_host_key 2>/dev/null
