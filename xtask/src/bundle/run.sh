#!/usr/bin/env bash
# Runs gpustream's tests, examples and benchmarks, which lie beside this script, on a GPU host without Rust.
#
#   run.sh [--device NAME] [SECTION]...      sections, in the order given; without any: tests examples bench
#
#   tests      the conformance suite, and the operations between ranks, all of which are the device
#   examples   every example at its default size
#   bench      every operation against the raw driver call, as text and JSON, and all-reduce against NCCL
#   soak       everything at once for GPUSTREAM_SOAK_MINUTES (10 unless set), with a verdict, samples and a picture of whether
#              the process grows
#   sanitize   memcheck, racecheck and synccheck of compute-sanitizer, which are sections of their own, too: the suite
#              under the first, the tests of the library's kernels under the others
#   shim       the suite through the HIP backend, over a libamdhip64 that forwards to CUDA
#
# NAME is cuda:0 unless given. Logs go to ./results, or to the folder in GPUSTREAM_RESULTS. The script goes on after a
# failure, lists all failures at the end, and then exits with 1.
set -uo pipefail

here="$(cd "$(dirname "$0")" && pwd)"
results="${GPUSTREAM_RESULTS:-$PWD/results}"
conformance="$here/tests/conformance"
device=cuda:0
sections=()

usage() {
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"
}

while [ "$#" -gt 0 ]; do
    case "$1" in
        --device) device="${2:?--device needs a name}"; shift ;;
        -h | --help) usage; exit 0 ;;
        tests | examples | bench | soak | sanitize | memcheck | racecheck | synccheck | shim) sections+=("$1") ;;
        *) usage >&2; echo "run.sh: unknown argument: $1" >&2; exit 2 ;;
    esac
    shift
done
[ "${#sections[@]}" -gt 0 ] || sections=(tests examples bench)

mkdir -p "$results"
# Kernels compiled at run time are cached beside the results.
export GPUSTREAM_CACHE_DIR="${GPUSTREAM_CACHE_DIR:-$results/cache}"
failed=()

# check NAME COMMAND...: runs the command, keeps its output, and remembers whether it failed.
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

# suite LABEL DEVICE COMMAND...: runs the conformance suite on a device; the command ends with the suite and its filter.
suite() {
    local label="$1" on="$2"
    shift 2
    check "$label" env GPUSTREAM_TEST_DEVICES="$on" "$@"
}

section_tests() {
    suite "tests on $device" "$device" GPUSTREAM_HAMMER_SECONDS="${GPUSTREAM_HAMMER_SECONDS:-60}" "$conformance"
    suite "mathematics on $device" "$device" "$here/tests/math"
    suite "ranks on $device" "$device" "$here/tests/local"
    # The shim for HIP has no RCCL.
    case "$device" in
        cuda*) suite "ranks by NCCL on $device" "$device" "$here/tests/nccl" ;;
    esac
}

section_examples() {
    local example name on
    for example in "$here"/examples/*; do
        name="$(basename "$example")"
        on="$device"
        # multi_device takes all devices of a backend.
        [ "$name" != multi_device ] || on="${device%%:*}"
        check "example $name" env -C "$results" "$example" --device "$on"
    done
}

section_bench() {
    check bench "$here/bench/bench" --device "$device" --json "$results/bench.json"
    # All CUDA devices, whichever was named.
    case "$device" in
        cuda*) check "bench of ranks" "$here/bench/ranks" ;;
    esac
}

section_soak() {
    check "soak on $device" "$here/tests/soak" --device "$device" --minutes "${GPUSTREAM_SOAK_MINUTES:-10}" \
        --out "$results/soak"
}

# sanitizer TOOL ARGUMENTS...: runs the suite under a tool of compute-sanitizer.
sanitizer() {
    local tool="$1"
    shift
    if ! command -v compute-sanitizer >/dev/null; then
        failed+=("$tool: no compute-sanitizer on PATH; it comes with the CUDA toolkit")
        return
    fi
    # Under the tools everything is slower, and kernels run one after another. Errors that a call returns are not
    # reported, since many tests cause them.
    suite "$tool on $device" "$device" GPUSTREAM_TEST_SERIAL=1 \
        GPUSTREAM_TEST_TIMEOUT="${GPUSTREAM_TEST_TIMEOUT:-1200}" \
        compute-sanitizer --tool "$tool" --error-exitcode 9 --report-api-errors no "$conformance" "$@"
}

# The tests of a process's end start some eighty processes, each of which takes seconds under memcheck.
section_memcheck() { sanitizer memcheck --skip ::faults:: --skip a_fault_resolves_everything --skip ::exit::; }
section_racecheck() { sanitizer racecheck kernels:: --skip beyond_32_bits; }
section_synccheck() { sanitizer synccheck kernels:: --skip beyond_32_bits; }
section_sanitize() {
    section_memcheck
    section_racecheck
    section_synccheck
}

# HIP 5 is left out, since its HIPRTC compiles only for known processors.
section_shim() {
    local version
    for version in 6 7; do
        suite "tests over the shim of HIP $version" hip:0 \
            GPUSTREAM_HIP_LIBRARY="$here/hip-shim/libamdhip64.so.$version" "$conformance"
    done
    # hipBLAS 2 belongs to HIP 6, and hipBLAS 3 to HIP 7.
    for version in 6 7; do
        suite "mathematics over the shim of HIP $version" hip:0 \
            GPUSTREAM_HIP_LIBRARY="$here/hip-shim/libamdhip64.so.$version" \
            GPUSTREAM_HIPBLAS_LIBRARY="$here/hip-shim/libhipblas.so.$((version - 4))" \
            GPUSTREAM_HIPFFT_LIBRARY="$here/hip-shim/libhipfft.so.0" "$here/tests/math"
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
