#!/usr/bin/env bash
# Runs what lies beside this script: gpustream's tests, examples and benchmarks, on a GPU host without Rust.
#
#   run.sh [--device NAME] [SECTION]...      sections, in the order given; without any: tests examples bench
#
#   tests      the conformance suite
#   examples   every example at its default size
#   bench      every operation against the raw driver call; text and JSON
#   sanitize   the suite under compute-sanitizer: memcheck; racecheck and synccheck for kernels with shared memory
#   shim       the suite through the HIP backend, over a libamdhip64 that forwards to CUDA
#
# NAME is cuda:0 unless it says otherwise. Logs go to ./results, or to where GPUSTREAM_RESULTS says. It goes on
# after a failure, lists all of them at the end, and then exits with 1.
set -uo pipefail

here="$(cd "$(dirname "$0")" && pwd)"
results="${GPUSTREAM_RESULTS:-$PWD/results}"
device=cuda:0
sections=()

usage() {
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"
}

while [ "$#" -gt 0 ]; do
    case "$1" in
        --device) device="${2:?--device needs a name}"; shift ;;
        -h | --help) usage; exit 0 ;;
        tests | examples | bench | sanitize | shim) sections+=("$1") ;;
        *) usage >&2; echo "run.sh: unknown argument: $1" >&2; exit 2 ;;
    esac
    shift
done
[ "${#sections[@]}" -gt 0 ] || sections=(tests examples bench)

mkdir -p "$results"
# What is compiled at run time stays with the results.
export GPUSTREAM_CACHE_DIR="${GPUSTREAM_CACHE_DIR:-$results/cache}"
failed=()

# check NAME COMMAND...: runs it, keeps its output, and remembers whether it failed.
check() {
    local name="$1" start=$SECONDS status
    shift
    echo
    echo "=== $name"
    "$@" 2>&1 | tee "$results/${name//[ \/:]/-}.log"
    status=${PIPESTATUS[0]}
    echo "--- $name: status $status, $((SECONDS - start)) s"
    [ "$status" -eq 0 ] || failed+=("$name (status $status)")
}

# suite LABEL DEVICE [PREFIX...]: all conformance tests on a device, perhaps under a tool.
suite() {
    local label="$1" on="$2" test
    shift 2
    for test in "$here"/tests/*; do
        check "$label $(basename "$test")" env GPUSTREAM_TEST_DEVICES="$on" "$@" "$test"
    done
}

section_tests() {
    suite tests "$device"
}

section_examples() {
    local example
    for example in "$here"/examples/*; do
        check "example $(basename "$example")" env -C "$results" "$example" --device "$device"
    done
}

section_bench() {
    check bench "$here/bench/bench" --device "$device" --json "$results/bench.json"
}

section_sanitize() {
    local tool=compute-sanitizer
    if ! command -v "$tool" >/dev/null; then
        failed+=("sanitize: no compute-sanitizer on PATH; it comes with the CUDA toolkit")
        return
    fi
    suite memcheck "$device" "$tool" --tool memcheck --error-exitcode 9
    suite racecheck "$device" "$tool" --tool racecheck --error-exitcode 9
    suite synccheck "$device" "$tool" --tool synccheck --error-exitcode 9
}

section_shim() {
    local version
    for version in 5 6 7; do
        suite "shim of HIP $version" hip:0 env \
            GPUSTREAM_HIP_LIBRARY="$here/hip-shim/libamdhip64.so.$version" \
            GPUSTREAM_HIPRTC_LIBRARY="$here/hip-shim/libhiprtc.so.$version"
    done
}

for section in "${sections[@]}"; do
    "section_$section"
done

echo
if [ "${#failed[@]}" -gt 0 ]; then
    echo "run.sh: FAILED:"
    printf '  %s\n' "${failed[@]}"
    exit 1
fi
echo "run.sh: ${sections[*]}: all passed; logs in $results"
