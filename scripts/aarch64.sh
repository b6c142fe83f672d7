#!/usr/bin/env bash
# Runs the CPU backend's tests for aarch64 in an emulator: the stack switch, the signal handler and the headers have
# parts for that processor alone, which no test on x86-64 reaches. On Debian the tests need
#
#     apt-get install g++-aarch64-linux-gnu qemu-user-static
#     rustup target add aarch64-unknown-linux-gnu
#
# and are skipped if one of these is missing. Emulation proves nothing about speed, nor about the order in which a real
# processor's memory accesses become visible.
set -euo pipefail
cd "$(dirname "$0")/.."

target=aarch64-unknown-linux-gnu
skip() {
    echo "SKIPPED: no $1; see scripts/aarch64.sh"
    exit 0
}
command -v aarch64-linux-gnu-g++ >/dev/null || skip aarch64-linux-gnu-g++
command -v qemu-aarch64-static >/dev/null || skip qemu-aarch64-static
[ -d "$(rustc --print target-libdir --target "$target")" ] || skip "standard library for $target"

export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER='qemu-aarch64-static -L /usr/aarch64-linux-gnu'
# The tests compile kernels themselves. Tests that start their own executable again are left out under emulation.
GPUSTREAM_TEST_EMULATED=1 CXX=aarch64-linux-gnu-g++ cargo test -p gpustream-cpu --target "$target" "$@"
