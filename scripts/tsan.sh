#!/usr/bin/env bash
# Runs ThreadSanitizer over the stress test: four threads with two handles of the CPU device. The script needs
#
#     rustup toolchain install nightly --profile minimal --component rust-src
#
# and a C++ compiler. It installs nothing itself, and skips the run if one of these is missing.
#
#   scripts/tsan.sh [ROUNDS]      rounds of each thread, 2000 unless given
#
# The standard library is built anew with the sanitiser, so the first run takes some minutes. Kernels are compiled
# without the sanitiser, so it does not see their accesses. It does not know the stacks of kernels that wait either, so
# a report from below a kernel may name the wrong callers.
set -euo pipefail
cd "$(dirname "$0")/.."

skip() {
    echo "SKIPPED: no $1; see scripts/tsan.sh"
    exit 0
}
target="$(rustc -vV | sed -n 's/^host: //p')"
case "$target" in
    x86_64-unknown-linux-gnu | aarch64-unknown-linux-gnu) ;;
    *) skip "ThreadSanitizer for $target" ;;
esac
rustc +nightly --version >/dev/null 2>&1 || skip 'nightly toolchain'
[ -d "$(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library" ] || skip 'rust-src of the nightly toolchain'
command -v c++ >/dev/null || skip 'C++ compiler'

export RUSTFLAGS="${RUSTFLAGS:-} -Zsanitizer=thread -Cforce-frame-pointers=yes"
# The exit code for a report is 66. The run goes on after a report, so that one run shows all.
export TSAN_OPTIONS="${TSAN_OPTIONS:-exitcode=66 halt_on_error=0 history_size=5 second_deadlock_stack=1}"
export GPUSTREAM_STRESS_ROUNDS="${1:-2000}" GPUSTREAM_BACKENDS=cpu GPUSTREAM_CPU_THREADS="${GPUSTREAM_CPU_THREADS:-4}"
rustc +nightly --version
cargo +nightly test -Zbuild-std --target "$target" -p conformance --test stress -- --nocapture
echo "tsan: $GPUSTREAM_STRESS_ROUNDS rounds of each thread, nothing to report"
