#!/bin/sh
# in-node.sh CGROUP PROGRAM [ARGUMENT...]
# Runs a program as if this were a machine of its own: in its own cgroups, which it sees as the roots of the hierarchies.
# Several slurmd, of several clusters, would else share /sys/fs/cgroup/*/slurm_<node>, and a job that ends in one
# cluster would take the processes of the job with the same number in the other one along.
# On a cgroup v2 host the v1 hierarchies freezer and devices can still be mounted: v2 has no such controllers.
set -eu

# The caller's namespace has whatever the host has; all mounts below are seen by the program only.
if [ "$1" = --mounted ]; then
    # Second half, in the new cgroup namespace: mount again, so that the roots are the node's own cgroups.
    shift
    for folder in /sys/fs/cgroup/*; do
        umount "$folder"
        mount -t cgroup -o "${folder##*/}" none "$folder"
    done
    exec "$@"
fi
if [ "$1" != --private ]; then
    exec unshare --mount sh "$0" --private "$@"
fi
shift
cgroup=$1
shift

# Slurm needs these two; the others only where the host has them as v1 already: mounting them would take them from v2.
controllers="freezer devices"
for controller in cpuset memory cpuacct; do
    if grep -q " /sys/fs/cgroup/$controller cgroup " /proc/mounts; then
        controllers="$controllers $controller"
    fi
done
mount -t tmpfs -o mode=755 none /sys/fs/cgroup
for controller in $controllers; do
    folder=/sys/fs/cgroup/$controller
    mkdir "$folder"
    mount -t cgroup -o "$controller" none "$folder"
    if [ "$cgroup" = --remove ]; then
        for mine in "$@"; do
            # The kernel removes only cgroups without processes.
            [ ! -d "$folder/$mine" ] || find "$folder/$mine" -depth -type d -exec rmdir {} +
        done
        continue
    fi
    mkdir -p "$folder/$cgroup"
    if [ "$controller" = cpuset ]; then
        # A new cpuset is empty and takes no process.
        cat "$folder/cpuset.cpus" > "$folder/$cgroup/cpuset.cpus"
        cat "$folder/cpuset.mems" > "$folder/$cgroup/cpuset.mems"
    fi
    echo $$ > "$folder/$cgroup/cgroup.procs"
done
[ "$cgroup" = --remove ] || exec unshare --cgroup sh "$0" --mounted "$@"
