#!/bin/sh
# First process of the guest: load drivers, take address and keys from the hypervisor (fw_cfg), become busybox init,
# which runs dropbear. User, mounts, tools and the clock come from rmsplugin over ssh.
export PATH=/usr/bin
mount -t proc -o nosuid,nodev,noexec proc /proc
mount -t sysfs -o nosuid,nodev,noexec sys /sys
mount -t devtmpfs -o nosuid,mode=755 dev /dev
mkdir -p /dev/pts /dev/shm /root/.ssh /etc/dropbear
chmod 700 /root/.ssh /etc/dropbear
mount -t devpts -o nosuid,noexec,mode=620,gid=5,ptmxmode=666 devpts /dev/pts
mount -t tmpfs -o nosuid,nodev,mode=1777 shm /dev/shm
mount -t tmpfs -o nosuid,nodev,mode=1777 tmp /tmp
mount -t tmpfs -o nosuid,nodev,mode=755 run /run

modules=/lib/modules/$(uname -r)
while read -r module; do
    insmod "$modules/$module" 2>/dev/null
done <"$modules/boot.list"

# No user namespaces: most holes of kernels that let users be root begin in one.
echo 0 >/proc/sys/user/max_user_namespaces

ip link set lo up

fw_cfg=/sys/firmware/qemu_fw_cfg/by_name/opt/org.rmsplugin/config/raw

await_card() {
    tries=0
    until [ -e /sys/class/net/eth0 ] || [ "$tries" -ge 100 ]; do
        tries=$((tries + 1))
        usleep 20000
    done
}

# Each start from the template reads all of its memory that is not zero, be it in use or not. What the boot has used and given
# back is handed out again first, and is not much. Of what the kernel keeps back nothing can be cleared, and it caches as much
# again for this CPU; without a little that is left to it, it stands still.
clear_free_memory() {
    read -r reserve </proc/sys/vm/min_free_kbytes
    echo 2048 >/proc/sys/vm/min_free_kbytes
    while read -r key free _; do
        [ "$key" != MemFree: ] || break
    done </proc/meminfo
    cleared=$(((free - 16384) / 1024))
    [ "$cleared" -le 1024 ] || cleared=1024
    if [ "$cleared" -gt 0 ]; then
        mkdir /run/zero
        mount -t tmpfs -o size=100% zero /run/zero
        dd if=/dev/zero of=/run/zero/all bs=1M count="$cleared" 2>/dev/null
        umount /run/zero
        rmdir /run/zero
    fi
    echo "$reserve" >/proc/sys/vm/min_free_kbytes
}

# A guest that is told to wait is going to be saved as a template here, where it has nothing of its own yet. Restored as
# whatever VM, it finds the configuration of that one in the same place.
await_identity() {
    read -r first <"$fw_cfg"
    [ "$first" = wait ] || return 0
    modprobe nfsv4
    modprobe nfsv3
    await_card
    clear_free_memory
    echo 'rmsplugin-guest: waiting' >/dev/console
    while [ "$first" = wait ]; do
        usleep 20000
        read -r first <"$fw_cfg"
    done
    hwclock -s -u
}

# From here on a guest that starts from a template is waited for, and, emulated, takes its time for each program.
# KEY=VALUE lines, never evaluated. They are copied first: each read of the original begins at its first byte.
config=/run/config
address='' gateway='' mac='' name=guest host_key='' dropbear_host_key=''
dropbear_key=/etc/dropbear/dropbear_ed25519_host_key
if [ -r "$fw_cfg" ]; then
    await_identity
    umask 077
    cat "$fw_cfg" >"$config"
    umask 022
fi
if [ -r "$config" ]; then
    while IFS= read -r line || [ -n "$line" ]; do
        value=${line#*=}
        case $line in
        hostname=*) name=$value ;;
        address=*) address=$value ;;
        gateway=*) gateway=$value ;;
        mac=*) mac=$value ;;
        end=*) break ;;
        seed=*)
            printf '%s\n' "$value" | base64 -d >/dev/urandom
            reseed
            ;;
        root_authorized_key=*)
            umask 077
            printf '%s\n' "$value" >>/root/.ssh/authorized_keys
            umask 022
            ;;
        host_key=*) host_key=$value ;;
        dropbear_host_key=*) dropbear_host_key=$value ;;
        esac
    done <"$config"
    : >"$config" # it has keys
fi
umask 077
if [ -n "$dropbear_host_key" ]; then
    printf '%s\n' "$dropbear_host_key" | base64 -d >"$dropbear_key"
elif [ -n "$host_key" ]; then # an engine of before: an emulated guest takes 0.2 s for this
    printf '%s\n' "$host_key" | base64 -d >/run/host_key
    dropbearconvert openssh dropbear /run/host_key "$dropbear_key" 2>/dev/null
    rm -f /run/host_key
fi
umask 022
echo "$name" >/proc/sys/kernel/hostname
printf '%s\n' "$name" >/etc/hostname
printf '127.0.0.1 localhost\n%s %s\n' "${address%%/*}" "$name" >/etc/hosts
if [ -n "$address" ]; then
    await_card
    # The card of a restored guest has the address that the template had; two with one address must not be.
    [ -z "$mac" ] || ip link set eth0 address "$mac" || poweroff -f
    ip address add "$address" broadcast + dev eth0
    # Who asks for this address already hears of it at once, instead of asking again a second later.
    echo 1 >/proc/sys/net/ipv4/conf/eth0/arp_notify
    ip link set eth0 up
    [ -z "$gateway" ] || ip route add default via "$gateway" dev eth0
fi
exec /sbin/init
