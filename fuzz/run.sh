#!/bin/sh
# Runs every fuzz target for FUZZ_SECONDS (default 60) each, or those that are named: fuzz/run.sh hostlist config.
#
# With a nightly toolchain by libFuzzer; cargo-fuzz is installed into .cache where it is missing. Inputs that reach new code
# are kept in .cache/fuzz/corpus (FUZZ_WORK/corpus) and used by the next run. Without nightly the mutator of tests/src/fuzz
# runs instead.
set -eu
cd "$(dirname "$0")/.."
seconds=${FUZZ_SECONDS:-60}
cargo=${CARGO:-cargo}
here=$PWD
work=${FUZZ_WORK:-$here/.cache/fuzz}
targets=${*:-$(ls tests/fuzz-corpus)}

if ! "$cargo" +nightly --version >/dev/null 2>&1; then
	echo "no nightly toolchain, so no libFuzzer: the mutator of the tests runs for $seconds s on each target"
	GPUWARD_FUZZ_SECONDS=$seconds GPUWARD_FUZZ_TARGETS="$targets" \
		"$cargo" test --locked -p gpuward-tests --test fuzz mutated_inputs -- --nocapture
	exit
fi

PATH=$work/cargo-fuzz/bin:$PATH
if ! "$cargo" fuzz --version >/dev/null 2>&1; then
	"$cargo" install --quiet --locked cargo-fuzz --root "$work/cargo-fuzz" --target-dir "$work/cargo-fuzz/target"
fi
fuzz() {
	command=$1
	shift
	"$cargo" +nightly fuzz "$command" --fuzz-dir fuzz --target-dir "$work/target" --release --debug-assertions targets "$@"
}
fuzz build

for target in $targets; do
	kept=tests/fuzz-corpus/$target
	grown=$work/corpus/$target
	found=$work/found/$target-
	mkdir -p "$grown" "$work/found"
	export GPUWARD_FUZZ_TARGET="$target"
	echo "== $target, $seconds s"
	# The bound is MAX_INPUT_BYTES. An input of 64 KiB that takes 10 s is as much of a fault as one that panics.
	if ! fuzz run "$grown" "$kept" -- -max_total_time="$seconds" -max_len=65536 -timeout=10 -rss_limit_mb=2048 \
		-artifact_prefix="$found" -print_final_stats=1 >"$work/$target.log" 2>&1; then
		grep -A 8 'panicked at\|ERROR:' "$work/$target.log" || tail -n 30 "$work/$target.log"
		echo "$target breaks a promise; the whole output is in $work/$target.log. The input is in"
		ls "$found"* 2>/dev/null || echo "(no file: the target itself did not start)"
		echo "To try it again: cp one of them into $kept/ and run 'cargo test -p gpuward-tests --test fuzz every_input'"
		exit 1
	fi
	sed -n 's/^stat::number_of_executed_units: */   inputs: /p' "$work/$target.log"
done
echo "every target kept its promises"
