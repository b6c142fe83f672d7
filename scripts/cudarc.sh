#!/usr/bin/env bash
# Compiles gpustream-cuda beside cudarc as applications choose it: with each of several versions of CUDA, by each of the
# ways to choose one, beside candle and CubeCL, and linked with NVIDIA's libraries.
#
# cudarc has one version for all crates of an application, and does not compile with two. So gpustream chooses none. The
# crates made here lie below the target folder, but cargo runs outside of the workspace, whose configuration chooses a version.
set -euo pipefail
root="$(realpath "$(dirname "$0")/..")"
folder="$(realpath -m "${CARGO_TARGET_DIR:-$root/target}")/cudarc"
rm -rf "$folder/apps"
mkdir -p "$folder/apps" "$folder/bin" "$folder/lib64"
export CARGO_TARGET_DIR="$folder/target" CARGO_PROFILE_DEV_DEBUG=none
unset CUDARC_CUDA_VERSION NVCC
cd /

# A toolkit of the version in $NVCC, or none, whatever this machine has.
cat >"$folder/bin/nvcc" <<'NVCC'
#!/bin/sh
[ -n "${NVCC:-}" ] || exit 1
printf 'nvcc: NVIDIA (R) Cuda compiler driver\nCopyright\nBuilt\nCuda compilation tools, release %s, V%s.0\n' "$NVCC" "$NVCC"
NVCC
chmod +x "$folder/bin/nvcc"
export PATH="$folder/bin:$PATH"

any="version = '*', default-features = false"

# application NAME VERSION DEPENDENCY…: writes a crate that depends on gpustream-cuda too, and compiles only if cudarc has
# bindings of VERSION; `newest` is any.
application() {
    local main="$folder/apps/$1/src/main.rs"
    mkdir -p "${main%/*}"
    echo 'fn main() { println!("{:?}", std::ptr::from_ref(gpustream_cuda::backend())) }' >"$main"
    [ "$2" = newest ] || echo "const _: () = assert!(cudarc::driver::sys::CUDA_VERSION == $2);" >>"$main"
    printf '%s\n' '[package]' "name = 'app'" "version = '0.0.0'" "edition = '2024'" '[workspace]' '[dependencies]' \
        "gpustream-cuda.path = '$root/crates/cuda'" "${@:3}" >"$folder/apps/$1/Cargo.toml"
}

# app NAME COMMAND…: runs cargo on a crate.
app() {
    cargo "${@:2}" --quiet --manifest-path "$folder/apps/$1/Cargo.toml"
}

echo '--- no choice, no toolkit: the newest version that cudarc has'
application none newest
app none check
echo '--- no choice, the toolkit of CUDA 12.6'
application toolkit 12060 "cudarc = { $any }"
# cudarc looks anew if one of its variables changes.
NVCC=12.6 CUDA_HOME="$folder" app toolkit check
echo '--- CUDARC_CUDA_VERSION=13010'
application variable 13010 "cudarc = { $any }"
CUDARC_CUDA_VERSION=13010 app variable check

for version in 12000 12040 12080 13000; do
    echo "--- feature cuda-$version"
    application "$version" "$version" "cudarc = { $any, features = ['cuda-$version'] }"
    app "$version" check
done

echo '--- beside candle-core and cubecl-cuda'
# Only cudarc and gpustream-cuda are compiled, with the features that all of these crates turn on together.
application others newest "candle-core = { version = '*', features = ['cuda'] }" "cubecl-cuda = '*'"
app others tree --edges normal --prefix none --format '{p} {f}' | grep -E '^(cudarc|candle-core|cubecl-cuda) ' | sort -u
app others check -p gpustream-cuda

echo '--- linked with the driver and NVRTC at build time'
# Libraries without a function: our code links, because it refers to none.
for library in cuda nvrtc; do
    cc -shared -o "$folder/lib64/lib$library.so" -x c /dev/null
done
application linked 12080 "cudarc = { $any, features = ['dynamic-linking', 'cuda-12080'] }"
CUDA_HOME="$folder" app linked run
