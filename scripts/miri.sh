#!/usr/bin/env bash
# Runs Miri over the parts of the crates that call neither a driver nor a compiler: the history of uses, free lists and
# arenas, the latch, images, error codes. Miri finds undefined behaviour, leaks, and data races. The script needs
#
#     rustup toolchain install nightly --profile minimal --component miri,rust-src
#
# It installs nothing itself, and skips the run if one of these is missing. Tests with random cases make few of them;
# the replay of long logs is left out.
set -euo pipefail
cd "$(dirname "$0")/.."

skip() {
    echo "SKIPPED: no $1; see scripts/miri.sh"
    exit 0
}
rustc +nightly --version >/dev/null 2>&1 || skip 'nightly toolchain'
cargo +nightly miri --version >/dev/null 2>&1 || skip 'Miri of the nightly toolchain'
[ -d "$(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library" ] || skip 'rust-src of the nightly toolchain'

# Random cases come from the system's generator, which Miri's isolation would forbid.
export MIRIFLAGS="${MIRIFLAGS:--Zmiri-disable-isolation}"
export PROPTEST_CASES="${PROPTEST_CASES:-4}"

miri() {
    echo "--- $*"
    cargo +nightly miri test "$@"
}
rustc +nightly --version
miri -p gpustream-hal --lib
miri -p gpustream-core --lib -- track:: pool:: sync:: door_mutex:: step::arguments:: --skip pool::replay
miri -p gpustream --no-default-features --lib -- view:: strided:: launch::
miri -p gpustream-cuda --lib -- image:: module::
miri -p gpustream-hip --no-default-features --lib -- arch:: library::
# The parser of kernels is C, which Miri cannot run; the other code that reads bytes or text is run here.
miri -p gpustream-build --lib -- tables:: diagnostic:: headers::tests::includes types::tests contract::
