#!/bin/sh
# Checks gpuward on a real NVIDIA GPU and measures what NVML's calls cost there. docs/measured.md says how to run it and
# what to do with the result.
#
# Reads only: changes no setting of any GPU, resets nothing, needs no network. Leaves nothing behind but its output folder
# (and lines of the prolog in syslog). Every step has a deadline; a hung driver costs its step.

set -u

usage() {
    cat <<'USAGE'
usage: tests/device/check.sh [--out FOLDER] [--library FILE] [--python PROGRAM] [--smi PROGRAM] [--fake SCENARIO] [PROGRAMS]

PROGRAMS   folder with gpuward, gpuward-prolog, gpuward-epilog, device_check, scenario and libnvidia_ml.so;
           target/release where nothing is said, built offline where that is missing and cargo is there
--out      where report.md and what it rests on go; $OUT or ./device-check
--library  the driver's library, where it is in no usual place
--python   a python3 with nvidia-ml-py; else python3, with .cache/pynvml (or $GPUWARD_PYNVML) where that is there
--smi      nvidia-smi, the second opinion where Python's does not answer; else the one on the PATH
--fake     a file or a name of tests/scenarios: everything on a simulated machine

Exit code: 0 all that could be compared agrees, 1 something differs, 2 no GPU answers, 64 wrong usage, 3 a fault of ours.
USAGE
}

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${OUT:-device-check}
programs='' library='' python=python3 smi='' fake=''

while [ $# -gt 0 ]; do
    case $1 in
    --out | --library | --python | --smi | --fake)
        [ $# -ge 2 ] || { usage >&2; exit 64; }
        case $1 in
        --out) out=$2 ;;
        --library) library=$2 ;;
        --python) python=$2 ;;
        --smi) smi=$2 ;;
        --fake) fake=$2 ;;
        esac
        shift 2
        ;;
    -h | --help) usage; exit 0 ;;
    -*) usage >&2; exit 64 ;;
    *)
        [ -z "$programs" ] || { usage >&2; exit 64; }
        programs=$1
        shift
        ;;
    esac
done

say() { echo "device check: $*" >&2; }

die() { say "$*"; exit 3; }

# All in all, without a build.
SECONDS_IN_ALL=230

# In memory where that can be, as /run on a real node: the prolog syncs what it writes. Libraries must be loadable there.
folder=/dev/shm
if [ ! -w $folder ] || grep -q "^[^ ]* $folder [^ ]* [^ ]*noexec" /proc/mounts 2>/dev/null; then folder=/tmp; fi
work=$(mktemp -d "${TMPDIR:-$folder}/gpuward-device.XXXXXX") || exit 3
had_copies=no
[ -d /var/lib/gpuward ] && had_copies=yes

# gpuward keeps a copy of each configuration file that it has used; that of ours has our folder's name in its own.
clean_up() {
    if [ -f "$work/running" ] && [ ! -f "$work/code" ]; then kill "$(cat "$work/running")" 2>/dev/null; fi
    rm -f /var/lib/gpuward/valid/*"${work##*/}"* 2>/dev/null
    [ $had_copies = yes ] || rmdir /var/lib/gpuward/valid /var/lib/gpuward 2>/dev/null
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 3' INT TERM HUP

# Notes a step for the report: name, exit code ("-" left out), remark.
note() { printf '%s\t%s\t%s\n' "$1" "$2" "$3" >>"$work/steps"; }

begin=$(date +%s)
left() { echo $((SECONDS_IN_ALL - $(date +%s) + begin)); }

# limited SECONDS OUTPUT COMMAND...: its exit code; 124 or 137 where it ran out of time, also where not even SIGKILL ends
# it: it is left behind then, since waiting for it would hang us, too.
limited() {
    limit=$1 output=$2
    shift 2
    # No step gets more than half of what is left: one that hangs leaves time for the others.
    most=$(($(left) / 2))
    [ "$limit" -le "$most" ] || limit=$most
    : >"$work/said"
    [ "$limit" -ge 1 ] || return 124
    rm -f "$work/code"
    (
        timeout -k 2 "$limit" "$@" >"$output" 2>"$work/said" </dev/null &
        echo $! >"$work/running"
        wait $!
        echo $? >"$work/code.new"
        mv "$work/code.new" "$work/code"
    ) &
    end=$(($(date +%s) + limit + 5))
    until [ -f "$work/code" ]; do
        [ "$(date +%s)" -lt $end ] || return 137
        sleep 0.02 2>/dev/null || sleep 1
    done
    return "$(cat "$work/code")"
}

# step NAME SECONDS OUTPUT COMMAND...: the same, with a line in the report where it does not end with 0.
step() {
    name=$1
    shift
    say "$name"
    limited "$@"
    code=$?
    [ $code = 0 ] || note "$name" $code "$(tr '\n\t' '  ' <"$work/said" | cut -c1-200)"
    cat "$work/said" >>"$out/log.txt"
    return $code
}

# --- what to run -------------------------------------------------------------------------------------------------------

NEEDED='gpuward gpuward-prolog gpuward-epilog device_check scenario libnvidia_ml.so'

missing() {
    for file in $NEEDED; do
        # In a folder of cargo's own the newest library lies in deps.
        [ -e "$1/$file" ] || [ -e "$1/deps/$file" ] || { echo "$file"; return; }
    done
}

if [ -z "$programs" ]; then
    programs=$root/target/release
    if [ -n "$(missing "$programs")" ] && command -v cargo >/dev/null; then
        say "building $programs, which takes minutes"
        # Not the plugin, which needs Slurm's headers.
        (cd "$root" && cargo build --release --offline --locked --target-dir target -p gpuward -p gpuward-prolog \
            -p gpuward-epilog -p gpuward-tests -p fake-nvml) >&2 || die "cargo build failed"
    fi
fi
[ -z "$(missing "$programs")" ] || die "$programs/$(missing "$programs") is missing: build it (docs/measured.md), or name a folder that has it"
programs=$(cd "$programs" && pwd)
mkdir -p "$out" || exit 3
out=$(cd "$out" && pwd)
: >"$out/log.txt"
: >"$work/steps"
check=$programs/device_check

# --- where ------------------------------------------------------------------------------------------------------------

sys=/sys proc=/proc kmsg=/dev/kmsg
second_path=${LD_LIBRARY_PATH:-}
if [ -n "$fake" ]; then
    [ -f "$fake" ] || fake=$root/tests/scenarios/$fake.toml
    "$check" machine "$fake" "$work/simulated" || exit 3
    library=$work/simulated/lib/libnvidia-ml.so.1
    sys=$work/simulated/root/sys proc=$work/simulated/root/proc kmsg=$work/simulated/kmsg
    second_path=$work/simulated/lib
fi

# The prolog's environment is empty, as slurmd's is: a library that only LD_LIBRARY_PATH finds gets its path here.
if [ -z "$library" ]; then
    library=libnvidia-ml.so.1
    if ! ldconfig -p 2>/dev/null | grep -q 'libnvidia-ml\.so\.1'; then
        for folder in $(echo "${LD_LIBRARY_PATH:-}" | tr : ' ') /usr/local/nvidia/lib64 /usr/lib/wsl/lib \
            /usr/lib/x86_64-linux-gnu /usr/lib64; do
            if [ -e "$folder/libnvidia-ml.so.1" ]; then
                library=$folder/libnvidia-ml.so.1
                break
            fi
        done
    fi
fi

site=$work/site
write_config() {
    mkdir -p "$site/etc"
    cat >"$site/etc/gpuward.toml" <<CONFIG
[paths]
run = "$site/run"
state = "$site/state"
spool = "$site/spool"
sysfs = "$1"
procfs = "$2"
kmsg = "$3"
[nvml]
library = "$4"
[log]
file = "$site/gpuward.log"
level = "debug"
CONFIG
    : >"$site/etc/slurm.conf"
}
write_config "$sys" "$proc" "$kmsg" "$library"

# gpuward VERB...: on this machine with the throw-away configuration.
ask() {
    echo "$programs/gpuward $1 --config $site/etc/gpuward.toml --node device-check --slurm-conf $site/etc/slurm.conf"
}

# --- 1: the machine -----------------------------------------------------------------------------------------------------

who=root
[ "$(id -u)" = 0 ] || who="user $(id -un)"
system=$(. /etc/os-release 2>/dev/null && echo "${PRETTY_NAME:-}")
slurm=$(slurmd -V 2>/dev/null || echo "no Slurm")
processor=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo 2>/dev/null | head -n 1)
{
    [ -z "$fake" ] || printf 'SIMULATED machine %s: no measurement of a GPU.\n' "$(basename "$fake" .toml)"
    printf '%s, ' "$(date -u +%Y-%m-%d)" "$("$programs/gpuward" --version)" "${system:-Linux}" "kernel $(uname -r)" \
        "$(nproc) CPUs ${processor:-}" "$slurm"
    printf 'run as %s.\n' "$who"
} >"$work/machine"
if [ "$who" != root ]; then
    note "run as $who" - "the kernel log, and what the driver tells root only, were not read"
elif [ ! -r "$kmsg" ]; then
    note "kernel log" - "$kmsg cannot be read here"
fi

# --- 5, 6: what each call costs; first, since it tells which GPUs there are ----------------------------------------------

step "costs of NVML's calls" 60 "$work/calls" "$check" calls "$library"

# --- 2: gpuward's own view ------------------------------------------------------------------------------------------------

# shellcheck disable=SC2046 # the words of a command
step "gpuward snapshot" 15 "$work/before-1" $(ask snapshot)
if [ -z "$fake" ] && grep -q '"gpu":' "$work/calls" 2>/dev/null && ! grep -q '"handle": *{' "$work/before-1"; then
    # A container may hide /sys and /proc/driver although the driver answers.
    "$check" tree "$work/calls" "$work/shown" && write_config "$work/shown/sys" "$work/shown/proc" "$kmsg" "$library"
    note "this host's /sys and /proc/driver/nvidia" - "show no GPU; gpuward was shown those that NVML names, so topology means nothing"
    # shellcheck disable=SC2046
    step "gpuward snapshot, shown the GPUs" 15 "$work/before-1" $(ask snapshot)
fi
cp "$work/before-1" "$out/snapshot.json"

verdict() {
    case $1 in
    0) echo "pass" ;;
    1) echo "fail: see log.txt" ;;
    2) echo "cannot tell: see log.txt" ;;
    *) echo "no answer, exit code $1" ;;
    esac
}
deep=''
"$programs/gpuward" check --help 2>/dev/null | grep -q -- --deep && deep=--deep
say "gpuward check $deep"
# shellcheck disable=SC2046
limited 15 "$work/check" $(ask check) $deep
code=$?
case $code in
0 | 1 | 2) note "gpuward check $deep" 0 "$(verdict $code)" ;;
*) note "gpuward check $deep" $code "$(head -c 200 "$work/said" | tr '\n\t' '  ')" ;;
esac
cat "$work/check" >>"$out/log.txt"
# shellcheck disable=SC2046
step "gpuward topo" 15 "$work/topo" $(ask topo)
cat "$work/topo" >>"$out/log.txt"

# --- 4: a second opinion on every value -----------------------------------------------------------------------------------

binding=${GPUWARD_PYNVML:-$root/.cache/pynvml}
# The real nvidia-smi knows nothing of a simulated machine.
[ -n "$smi" ] || [ -n "$fake" ] || smi=$(command -v nvidia-smi)
opinion() {
    limited 20 "$1" env PYTHONPATH="$binding${PYTHONPATH:+:$PYTHONPATH}" LD_LIBRARY_PATH="$second_path" \
        "$python" -B "$here/second.py" && return 0
    code=$?
    cat "$work/said" >>"$out/log.txt"
    note "second opinion by Python" - "exit code $code: $(tail -n 1 "$work/said" | cut -c1-200)"
    [ -n "$smi" ] || return 1
    limited 20 "$1" "$smi" -q -x && return 0
    note "second opinion by nvidia-smi" - "exit code $?"
    return 1
}

for round in 1 2 3; do
    say "second opinion, round $round"
    # shellcheck disable=SC2046
    [ $round = 1 ] || limited 15 "$work/before-$round" $(ask snapshot) || break
    opinion "$work/second-$round" || { rm -f "$work/second-$round"; break; }
    # shellcheck disable=SC2046
    limited 15 "$work/after-$round" $(ask snapshot) || break
    # A value that moves may have moved out of bounds: it differs only if it does so each time.
    limited 10 /dev/null "$check" moved "$work" $round || break
done
[ ! -f "$work/second-1" ] || cp "$work/second-1" "$out/second"

# --- 3: jobs ----------------------------------------------------------------------------------------------------------------

step "prolog and epilog" 45 "$work/jobs" "$check" jobs "$programs" "$site" "$work/before-1"
cat "$site/gpuward.log" >>"$out/log.txt" 2>/dev/null

# --- 7: this machine, simulated -----------------------------------------------------------------------------------------------

imported=$work/before-1
if [ -s "$imported" ] && [ ! -d "$work/shown" ]; then
    if step "scenario of the snapshot" 15 "$out/scenario.toml" "$programs/scenario" snapshot "$imported" &&
        step "simulated machine of the scenario" 15 /dev/null "$check" machine "$out/scenario.toml" "$work/again"; then
        write_config "$work/again/root/sys" "$work/again/root/proc" "$work/again/kmsg" "$work/again/lib/libnvidia-ml.so.1"
        # shellcheck disable=SC2046
        step "snapshot of the simulated machine" 15 "$work/fake" $(ask snapshot)
        cp "$imported" "$work/imported"
    fi
else
    note "this machine, simulated" - "needs a snapshot with the host's own layout"
fi

# --- 8: the table -------------------------------------------------------------------------------------------------------------

cp "$work/calls" "$out/calls.jsonl" 2>/dev/null
"$check" report "$work" "$out"
code=$?
say "$out/report.md is for docs/measured.md; snapshot.json, calls.jsonl and log.txt there are what it rests on"
exit $code
