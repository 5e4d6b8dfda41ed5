# Ends the cluster that was left up, and removes its folder.
# Daemons are known by process id and start time, jobs by the cgroups of the nodes.
for process in @PROCESSES@; do
    pid=${process%:*}
    stat=$(cat "/proc/$pid/stat" 2>/dev/null) || continue
    set -- ${stat##*) }
    # proc(5): start time is field 22 and the state, our first word, field 3.
    shift 19
    [ "$1" != "${process#*:}" ] || kill "$pid"
done
tries=0
while [ "$tries" -lt 50 ]; do
    left=
    for group in @CGROUPS@; do
        for file in $(grep -ls ":/$group\(/\|\$\)" /proc/[0-9]*/cgroup); do
            pid=${file#/proc/}
            left="$left ${pid%/cgroup}"
        done
    done
    [ -n "$left" ] || break
    # The daemons get a second to end by themselves.
    [ "$tries" -lt 10 ] || kill -KILL $left 2>/dev/null
    sleep 0.1
    tries=$((tries + 1))
done
[ ! -f "@FOLDER@/etc/in-node.sh" ] || [ -z "@CGROUPS@" ] || sh "@FOLDER@/etc/in-node.sh" --remove @CGROUPS@
rm -rf "@FOLDER@"
