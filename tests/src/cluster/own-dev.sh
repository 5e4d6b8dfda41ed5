#!/bin/sh
# own-dev.sh NODE [FOLDER TARGET]... -- PROGRAM [ARGUMENT...]
# Runs a program on a machine with GPUs of its own: the files of NODE/dev lie in its /dev, beside those of the host that
# are not NVIDIA's, and each FOLDER lies over TARGET. Slurm's detection takes no other paths than the driver's own.
# All mounts are the program's and its children's: they are gone with the last of them.
set -eu

if [ "$1" != --private ]; then
    exec unshare --mount --propagation private sh "$0" --private "$@"
fi
node=$2
shift 2

# A file system of its own: what is made in the host's /dev is there for everybody.
all=$node/all-devices
mkdir -p "$all"
mount -t tmpfs -o mode=755 none "$all"
find /dev -mindepth 1 -maxdepth 1 '(' -type c -o -type b -o -type l ')' ! -name 'nvidia*' -exec cp -a -t "$all" {} +
for folder in /dev/*/; do
    name=$(basename "$folder")
    case $name in nvidia*) continue ;; esac
    [ ! -L "/dev/$name" ] || continue
    mkdir "$all/$name"
    mount --rbind "$folder" "$all/$name"
done
for socket in $(find /dev -mindepth 1 -maxdepth 1 -type s); do
    : > "$all/${socket##*/}"
    mount --bind "$socket" "$all/${socket##*/}"
done
cp -a "$node/dev/." "$all/"
mount --move "$all" /dev

while [ "$1" != -- ]; do
    mount --bind "$1" "$2"
    shift 2
done
shift
exec "$@"
