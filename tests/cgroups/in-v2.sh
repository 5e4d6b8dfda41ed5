#!/bin/sh
# in-v2.sh GROUP PROGRAM [ARGUMENT...]
# Runs a program as on a host with control groups v2 only: GROUP is the top of all that it sees in /sys/fs/cgroup.
# in-v2.sh --remove GROUP
# Ends all processes in there and removes it.
set -eu

case $1 in
--mounted)
    # Third part, in the new namespace of control groups: mount again, so that the top is the group.
    shift
    umount /sys/fs/cgroup
    mount -t cgroup2 none /sys/fs/cgroup
    mkdir -p /sys/fs/cgroup/system.slice
    exec "$@"
    ;;
--private)
    shift
    # Only here: nobody else sees these mounts. What is below would keep its own.
    mount -t tmpfs none /sys/fs/cgroup
    mount -t cgroup2 none /sys/fs/cgroup
    ;;
*)
    exec unshare --mount sh "$0" --private "$@"
    ;;
esac

if [ "$1" = --remove ]; then
    group=/sys/fs/cgroup/$2
    [ -d "$group" ] || exit 0
    # Not by cgroup.kill: it spares a process whose first thread has ended (seen with Linux 6.18).
    tries=0
    while ! find "$group" -depth -type d -exec rmdir {} + 2>/dev/null; do
        [ "$tries" -lt 100 ] || exec find "$group" -depth -type d -exec rmdir {} +
        for pid in $(find "$group" -name cgroup.procs -exec cat {} + 2>/dev/null); do
            kill -KILL "$pid" 2>/dev/null || true
        done
        sleep 0.05
        tries=$((tries + 1))
    done
    exit 0
fi
group=/sys/fs/cgroup/$1
shift
mkdir -p "$group"
echo $$ > "$group/cgroup.procs"
exec unshare --cgroup sh "$0" --mounted "$@"
