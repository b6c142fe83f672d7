#!/usr/bin/env bash
# Fuzzes the code that reads bytes: kernel files and their contracts, parameter tables of cubins, notes of code objects,
# modules for the CPU, entries of the compile cache, timelines.
#   scripts/fuzz.sh [SECONDS-EACH] [TARGET]...      by default 60 seconds of every target
# Needs a nightly compiler and cargo-fuzz (`cargo install cargo-fuzz`). `cargo test` runs shorter property tests of the
# same code.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds="${1:-60}"
shift || true
cargo +nightly fuzz --version > /dev/null 2>&1 || {
    echo "fuzz.sh: install a nightly compiler and cargo-fuzz: rustup toolchain install nightly; cargo install cargo-fuzz" >&2
    exit 1
}
targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(cargo +nightly fuzz list)
for target in "${targets[@]}"; do
    echo "== $target"
    cargo +nightly fuzz run "$target" -- -max_total_time="$seconds" -max_len=65536
done
