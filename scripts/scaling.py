#!/usr/bin/env python3
"""Prints the tables of docs/ranks.md: what a model says about worlds of up to 1,024 GPUs. Nothing here is measured by the
script; change the numbers below to those of another machine."""

from math import log2

US, GB = 1e-6, 1e9

# Seen on two H100 with NVLink: `bench/ranks --threads`, and the example `poisson` with 511 points a side on one of them.
BUS = 331 * GB  # bus bandwidth of an all-reduce of 1 GiB
CALL = 13 * US  # an all-reduce of 8 bytes, where calls follow each other
MEMORY = 2540 * GB  # 112 bytes for each of the 511 ** 3 points in 5.89 ms

# Assumed.
PER_HOST = 8
NETWORK = 45 * GB  # of each GPU's 400 Gb/s adapter, in each direction

# Microseconds of a step, within a host and between hosts: the table in NCCL's `tuning.cc` (2.2x) for its protocols.
STEPS = {
    ("ring", "LL"): (0.6, 2.7),
    ("ring", "Simple"): (3.4, 14.0),
    ("tree", "LL"): (0.6, 5.0),
    ("tree", "Simple"): (4.0, 14.0),
}


def all_reduce(algorithm: str, size: float, ranks: int) -> float:
    """Returns the seconds of an all-reduce."""
    hosts = max(1, ranks // PER_HOST)
    # LL sends a flag with each four bytes: fast steps, for few bytes.
    inside, between = STEPS[algorithm, "LL" if size < 64 << 10 else "Simple"]
    if algorithm == "ring":
        steps = (2 * (ranks - 1) - 2 * (hosts - 1)) * inside + 2 * (hosts - 1) * between
    else:
        steps = 2 * ((ranks // hosts - 1) * inside + log2(hosts) * between)
    # A ring enters and leaves a host through all of its adapters.
    bandwidth = BUS if hosts == 1 else min(BUS, PER_HOST * NETWORK)
    if algorithm == "tree":
        bandwidth *= 0.92
    known = 2 * STEPS["ring", "LL"][0]  # CALL has the two steps of two ranks
    return CALL + (steps - known) * US + 2 * (ranks - 1) / ranks * size / bandwidth


def poisson(ranks: int, side_of_one: int) -> tuple[float, float, float, float]:
    """Returns the seconds of a round with as many points for each rank: the kernels', the inner planes', the halo's, and all."""
    points, side = side_of_one**3, round(side_of_one * ranks ** (1 / 3))
    planes = side / ranks
    kernels = 112 * points / MEMORY  # 14 values of 8 bytes a point
    inner = 16 * points / MEMORY * max(0, planes - 2) / planes
    halo = 0.0
    if ranks > 1:
        halo = CALL + 8 * side**2 / (BUS if ranks <= PER_HOST else NETWORK)
    sums = 2 * best(8, ranks) if ranks > 1 else 0
    return kernels, inner, halo, kernels + max(0, halo - inner) + sums


def best(size: float, ranks: int) -> float:
    return min(all_reduce(algorithm, size, ranks) for algorithm in ("ring", "tree"))


def shown(seconds: float) -> str:
    return f"{seconds / US:.0f} us" if seconds < 1e-3 else f"{seconds * 1e3:.1f} ms"


def main() -> None:
    sizes = [("8 B", 8), ("25 MiB", 25 << 20), ("1 GiB", 1 << 30)]
    print("| ranks |" + "".join(f" {name}, ring | tree |" for name, _ in sizes))
    print("|---:|" + "---:|" * 6)
    for ranks in (2, 8, 64, 256, 1024):
        times = [all_reduce(way, size, ranks) for _, size in sizes for way in ("ring", "tree")]
        print(f"| {ranks} |" + "".join(f" {shown(time)} |" for time in times))
    print("\n| ranks | points a side | kernels | inner planes | halo | round | efficiency |")
    print("|---:|" + "---:|" * 6)
    alone = poisson(1, 512)[3]
    for ranks in (1, 2, 8, 64, 256, 1024):
        kernels, inner, halo, whole = poisson(ranks, 512)
        columns = [shown(kernels), shown(inner), shown(halo), shown(whole), f"{alone / whole:.2f}"]
        print(f"| {ranks} | {round(512 * ranks ** (1 / 3))} |" + "".join(f" {column} |" for column in columns))


if __name__ == "__main__":
    main()
