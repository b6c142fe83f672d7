#!/usr/bin/env python3
"""Tests the module with NumPy, and with PyTorch and CuPy if they are installed and have a GPU.

You need only the module and NumPy. With `--require torch,cupy`, the run fails if it would have to skip one of these.
"""

import argparse
import gc
import os
import subprocess
import sys
import threading
import time

import numpy as np

import gpustream_example as example


class Skipped(Exception):
    """Says why a test cannot run here."""


def refused(kind, says, call, *args, **kwargs):
    """Checks that a call raises this kind of exception, with these words in its text."""
    try:
        call(*args, **kwargs)
    except kind as error:
        assert says in str(error), f"{says!r} in {error!r}"
    else:
        raise AssertionError(f"no {kind.__name__} with {says!r}")


def resident():
    """Returns how many bytes of host memory this process uses."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def settle(is_so):
    """Waits until the condition is true, because one of gpustream's threads makes it true in its own time."""
    for _ in range(10_000):
        if is_so():
            return
        time.sleep(0.001)
    raise AssertionError("nothing happened for 10 s")


class Old:
    """An array whose library only knows DLPack 0.8."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, *, stream=None):
        return self.array.__dlpack__(stream=stream)


class Twice(Old):
    """An array that always returns the same capsule."""

    capsule = None

    def __dlpack__(self, *, stream=None, max_version=None):
        if self.capsule is None:
            self.capsule = self.array.__dlpack__(stream=stream, max_version=max_version)
        return self.capsule


class OldTwice(Twice):
    """An array that always returns the same capsule, in DLPack 0.8."""

    def __dlpack__(self, *, stream=None):
        if self.capsule is None:
            self.capsule = self.array.__dlpack__(stream=stream)
        return self.capsule


class Placed(Old):
    """An array that names the wrong device. Its capsule names the right one."""

    def __init__(self, array, device):
        super().__init__(array)
        self.device = device

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, *, stream=None):
        return self.array.__dlpack__()


class OnlyInterface:
    """An array that has `__cuda_array_interface__` and no DLPack."""

    def __init__(self, array, **changes):
        self.__cuda_array_interface__ = {**array.__cuda_array_interface__, **changes}
        self.array = array


# Tests with NumPy, on the CPU device.


def numpy_arrays_are_used_where_they_are():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    y = np.full((3, 4), 100, dtype=np.float32)
    assert example.address(x) == x.ctypes.data
    assert example.address(x[1:]) == x[1:].ctypes.data, "a part of an array"
    z = example.scale_add(x, y, 2.0)
    assert z.shape == (3, 4) and z.__dlpack_device__() == (1, 0)
    address = example.address(z)
    z = np.from_dlpack(z)
    assert z.ctypes.data == address
    assert (z == 2 * x + y).all()
    out = np.zeros_like(x)
    assert example.scale_add(x, y, 3.0, out=out) is out
    assert (out == 3 * x + y).all()


def arrays_of_any_shape():
    for shape in [(), (1,), (0,), (3, 0, 2), (1, 5, 1), (2, 3, 4)]:
        x = np.random.default_rng(1).random(shape, dtype=np.float32)
        z = np.from_dlpack(example.scale_add(x, x, 1.0))
        assert z.shape == shape and (z == x + x).all(), shape
    column = np.ones((5, 7), dtype=np.float32)[:, :1]
    refused(ValueError, "make it contiguous first", example.scale_add, column, column, 1.0)
    one = np.ones((5, 7), dtype=np.float32)[:1, ::1]
    assert (np.from_dlpack(example.scale_add(one, one, 1.0)) == 2).all()


def own_arrays_are_arguments_too():
    x = np.ones(1000, dtype=np.float32)
    y = example.scale_add(x, x, 1.0)
    z = example.scale_add(y, y, 2.0)
    z = example.scale_add(z, x, 1.0)
    assert (np.from_dlpack(z) == 7).all()
    assert (np.from_dlpack(y) == 2).all()
    refused(BufferError, "already given to a library", np.from_dlpack, y)
    refused(BufferError, "already given to a library", example.scale_add, y, x, 1.0)
    refused(ValueError, "this module's", example.scale_add, x, x, 1.0, out=example.scale_add(x, x, 1.0))


def both_versions_of_dlpack():
    x = np.arange(100, dtype=np.float32)
    assert (np.from_dlpack(example.scale_add(Old(x), x, 1.0)) == 2 * x).all()
    capsule = example.scale_add(x, x, 1.0).__dlpack__()
    assert '"dltensor"' in repr(capsule), capsule
    capsule = example.scale_add(x, x, 1.0).__dlpack__(max_version=(1, 3))
    assert '"dltensor_versioned"' in repr(capsule), capsule
    z = np.from_dlpack(Old(example.scale_add(x, x, 1.0)))
    assert (z == 2 * x).all()
    del capsule


def what_does_not_fit_is_refused():
    x = np.ones(6, dtype=np.float32)
    scale_add = example.scale_add
    refused(ValueError, "elements are float64", scale_add, x, x.astype(np.float64), 1.0)
    refused(ValueError, "elements are complex64", scale_add, x.astype(np.complex64), x, 1.0)
    refused(ValueError, "elements are int32", scale_add, x.astype(np.int32), x, 1.0)
    refused(ValueError, "make it contiguous first", scale_add, x[::2], x[::2], 1.0)
    refused(ValueError, "make it contiguous first", scale_add, x, x[::-1], 1.0)
    refused(ValueError, "give arrays of one shape", scale_add, x, x[:5], 1.0)
    refused(ValueError, "give arrays of one shape", scale_add, x, x, 1.0, out=np.ones(5, dtype=np.float32))
    refused(ValueError, "`out` overlaps", scale_add, x, x, 1.0, out=x)
    refused(ValueError, "no stream", scale_add, x, x, 1.0, stream=7)
    refused(ValueError, "DLPack's type 8", scale_add, Placed(x, (8, 0)), x, 1.0)
    refused(ValueError, "on cpu and another on cuda:3", scale_add, x, Placed(x, (2, 3)), 1.0)
    refused(TypeError, "`list` is not an array", scale_add, [1.0], x, 1.0)
    z = scale_add(x, x, 1.0)
    refused(ValueError, "`stream=7`", z.__dlpack__, stream=7)
    refused(BufferError, "copy it afterwards", z.__dlpack__, copy=True)
    refused(BufferError, "copy it afterwards", z.__dlpack__, dl_device=(2, 0))
    assert (np.from_dlpack(z) == 2).all(), "an array that was refused is still there"


def capsule_is_used_once():
    x = np.ones(6, dtype=np.float32)
    for twice in Twice(x), OldTwice(x):
        np.from_dlpack(example.scale_add(twice, x, 1.0))
        refused(ValueError, "already used", example.scale_add, twice, x, 1.0)


def read_only_arrays_are_read():
    if np.lib.NumpyVersion(np.__version__) < "2.1.0":
        raise Skipped("NumPy gives no read-only arrays before 2.1")
    x = np.ones(6, dtype=np.float32)
    x.flags.writeable = False
    assert (np.from_dlpack(example.scale_add(x, x, 1.0)) == 2).all()
    refused(ValueError, "read-only", example.scale_add, np.ones_like(x), np.ones_like(x), 1.0, out=x)


def either_side_may_go_first():
    x = np.ones(1 << 16, dtype=np.float32)
    references = sys.getrefcount(x)
    z = example.scale_add(x, x, 1.0)
    settle(lambda: sys.getrefcount(x) == references)
    kept = np.from_dlpack(z)
    del x, z
    gc.collect()
    assert (kept == 2).all()
    capsule = example.scale_add(kept, kept, 1.0).__dlpack__()
    del kept, capsule
    z = example.scale_add(np.ones(5, dtype=np.float32), np.ones(5, dtype=np.float32), 1.0)
    del z


def threads_do_not_wait_for_each_other():
    """Several threads take the interpreter's lock while deleters need it on gpustream's own thread."""

    def work(seed, results):
        x = np.full(10_000, seed, dtype=np.float32)
        results.append(all((np.from_dlpack(example.scale_add(x, x, 1.0)) == 2 * seed).all() for _ in range(100)))

    results = []
    threads = [threading.Thread(target=work, args=(seed, results), daemon=True) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert results == [True] * 4, results


def python_runs_while_a_call_waits():
    """Another thread counts while this one has released the interpreter's lock, which only the module's calls do here."""
    count, stop = 0, False

    def work():
        nonlocal count
        while not stop:
            count += 1
            time.sleep(0)

    def runs_beside_a_call(n):
        nonlocal count
        x = np.ones(n, dtype=np.float32)
        out = np.empty_like(x)
        for _ in range(50):
            out[-1] = 0
            before = count
            example.scale_add(x, x, 1.0, out=out)
            assert out[-1] == 2, "a call did not wait on the CPU"
            # A short release of the lock lets the thread count once or twice, and a wait lets it count far.
            if count > before + 20:
                return True
        return False

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    thread = threading.Thread(target=work)
    thread.start()
    try:
        # On a fast machine a call may end before the other thread has counted far, so try longer ones too.
        assert any(runs_beside_a_call(1 << bits) for bits in range(22, 28)), "no call let another thread run"
    finally:
        stop = True
        sys.setswitchinterval(interval)
        thread.join()


def memory_stays_the_same():
    def rounds(count):
        for _ in range(count):
            x = np.ones(1 << 18, dtype=np.float32)  # 1 MiB
            np.from_dlpack(example.scale_add(x, x, 1.0))
            example.scale_add(x, x, 1.0).__dlpack__()
        settle(lambda: sys.getrefcount(x) == 2)

    rounds(100)
    before = resident()
    rounds(1000)
    grown = resident() - before
    assert grown < 32 << 20, f"{grown >> 20} MiB more after 1000 rounds of 3 MiB each"


SCENES = {
    "arrays that nobody took": "kept = [example.scale_add(x, x, 1.0) for _ in range(10)]",
    "arrays of both libraries": "kept = [np.from_dlpack(example.scale_add(x, x, 1.0)) for _ in range(10)]",
    "an unused capsule": "kept = example.scale_add(x, x, 1.0).__dlpack__()",
    "an early exit": "kept = example.scale_add(x, x, 1.0); raise SystemExit(0)",
    "memory on its way back": "[example.scale_add(x.copy(), x.copy(), 1.0) for _ in range(1000)]",
    "a thread at work": """
import threading
def work():
    while True:
        example.scale_add(x, x, 1.0)
        started.set()
started = threading.Event()
threading.Thread(target=work, daemon=True).start()
started.wait()
""",
}


def interpreter_ends_whatever_is_alive():
    head = "import numpy as np; import gpustream_example as example\n"
    head += "x = np.ones(1 << 16, dtype=np.float32)\n"
    for name, scene in SCENES.items():
        run = subprocess.run([sys.executable, "-c", head + scene], capture_output=True, text=True, timeout=120)
        assert run.returncode == 0 and not run.stderr, f"{name}: {run.returncode}\n{run.stderr}"


def matrices_are_multiplied():
    random = np.random.default_rng(2)
    for m, k, n in [(1, 1, 1), (3, 4, 5), (64, 100, 7), (2, 0, 3)]:
        x, y = random.random((m, k), dtype=np.float32), random.random((k, n), dtype=np.float32)
        z = np.from_dlpack(example.matmul(x, y))
        assert z.shape == (m, n) and np.allclose(z, x @ y, atol=1e-4), (m, k, n)
    out = np.zeros((64, 64), dtype=np.float32)
    x = random.random((64, 64), dtype=np.float32)
    assert example.matmul(x, example.matmul(x, x), out=out) is out
    assert np.allclose(out, x @ x @ x, rtol=1e-4)
    refused(ValueError, "shapes (m, k) and (k, n)", example.matmul, x, x[:5])
    refused(ValueError, "shapes (m, k) and (k, n)", example.matmul, x, x[0])
    refused(ValueError, "`out` overlaps", example.matmul, x, x, out=x)
    refused(ValueError, "elements are complex64", example.matmul, x.astype(np.complex64), x)


def the_last_dimension_is_transformed():
    random = np.random.default_rng(3)
    for shape in [(1,), (8,), (3, 100), (2, 5, 12), (0, 4)]:
        x = (random.random(shape) + 1j * random.random(shape)).astype(np.complex64)
        z = example.fft(x)
        assert z.shape == shape
        back = np.from_dlpack(example.fft(z, inverse=True))
        assert np.allclose(np.from_dlpack(z), np.fft.fft(x), atol=1e-4) and np.allclose(back, x, atol=1e-5), shape
    refused(ValueError, "needs an element", example.fft, x[:, :0].copy())
    refused(ValueError, "elements are float32", example.fft, np.ones(4, dtype=np.float32))
    one = np.ones(4, dtype=np.float32)
    refused(ValueError, "not complex64", example.fft, example.scale_add(one, one, 1.0))


# Tests with PyTorch and CuPy, on a GPU.


def torch_gpu():
    try:
        import torch
    except ImportError as error:
        raise Skipped(f"PyTorch is not installed ({error})") from None
    if not torch.cuda.is_available():
        raise Skipped("PyTorch has no GPU here")
    return torch


def cupy_gpu():
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
    except ImportError as error:
        raise Skipped(f"CuPy is not installed ({error})") from None
    except Exception as error:
        raise Skipped(f"CuPy has no GPU here ({error})") from None
    return cupy


def torch_tensors_are_used_where_they_are():
    torch = torch_gpu()
    x = torch.arange(12, dtype=torch.float32, device="cuda").reshape(3, 4)
    y = torch.full((3, 4), 100.0, device="cuda")
    assert example.address(x) == x.data_ptr()
    z = example.scale_add(x, y, 2.0)
    kind = 10 if torch.version.hip else 2
    assert z.shape == (3, 4) and z.__dlpack_device__() == (kind, x.device.index)
    address = example.address(z)
    z = torch.from_dlpack(z)
    assert z.data_ptr() == address and z.device == x.device
    assert torch.equal(z, 2 * x + y)
    out = torch.zeros_like(x)
    assert example.scale_add(x, y, 3.0, out=out) is out
    assert torch.equal(out, 3 * x + y)
    for shape in [(), (1,), (0,), (3, 0, 2), (1, 5, 1)]:
        x = torch.rand(shape, device="cuda")
        assert torch.equal(torch.from_dlpack(example.scale_add(x, x, 1.0)), 2 * x), shape


def torch_on_the_cpu_works_too():
    try:
        import torch
    except ImportError as error:
        raise Skipped(f"PyTorch is not installed ({error})") from None
    x = torch.arange(12, dtype=torch.float32)
    assert example.address(x) == x.data_ptr()
    assert torch.equal(torch.from_dlpack(example.scale_add(x, x, 2.0)), 3 * x)


def torch_errors_say_what_to_do():
    torch = torch_gpu()
    x = torch.ones(4, 6, device="cuda")
    scale_add = example.scale_add
    refused(ValueError, "elements are float64", scale_add, x, x.double(), 1.0)
    refused(ValueError, "elements are bfloat16", scale_add, x.bfloat16(), x, 1.0)
    refused(ValueError, "elements are float16", scale_add, x.half(), x, 1.0)
    refused(ValueError, "make it contiguous first", scale_add, x.t(), x.t(), 1.0)
    refused(ValueError, "make it contiguous first", scale_add, x[:, ::2], x[:, ::2], 1.0)
    refused(ValueError, "copy one of them first", scale_add, x, x.cpu(), 1.0)
    refused(ValueError, "give arrays of one shape", scale_add, x, x[:3], 1.0)
    if torch.cuda.device_count() > 1:
        refused(ValueError, "copy one of them first", scale_add, x, x.to("cuda:1"), 1.0)
    placed = Placed(x.cpu(), example.scale_add(x, x, 1.0).__dlpack_device__())
    refused(ValueError, "memory of the CPU", scale_add, x, placed, 1.0)
    twice = Twice(x)
    torch.from_dlpack(scale_add(twice, x, 1.0))
    refused(ValueError, "already used", scale_add, twice, x, 1.0)
    try:
        scale_add(x.clone().requires_grad_(), x, 1.0)
    except (BufferError, RuntimeError):
        pass
    else:
        raise AssertionError("a tensor with a gradient was taken")


def torch_does_not_wait():
    """A kernel spins in the caller's stream. Calls must return all the same, and the results are right once it has ended."""
    torch = torch_gpu()
    n = 1 << 20
    for stream in torch.cuda.current_stream(), torch.cuda.Stream():
        with torch.cuda.stream(stream):
            # The first round may wait, because it opens the device and allocates memory.
            for cycles in 0, 1 << 31:
                x = torch.zeros(n, device="cuda")
                y = torch.ones(n, device="cuda")
                out = torch.zeros(n, device="cuda")
                stream.synchronize()
                torch.cuda._sleep(cycles)
                x += 3
                z = torch.from_dlpack(example.scale_add(x, y, 2.0))
                w = torch.from_dlpack(example.scale_add(z, y, 1.0, stream=stream))
                example.scale_add(w, y, 1.0, out=out)
                x += 1000  # runs after the kernels, because it is in the same stream
                z += 1
                if cycles:
                    assert not stream.query(), "a call waited for the stream"
                stream.synchronize()
                assert (z == 8).all() and (w == 8).all() and (out == 9).all(), (z[0], w[0], out[0])
                del z, w


def torch_products_and_transforms_do_not_wait():
    """A kernel spins in the caller's stream. The calls return all the same, and work on tensors where they are."""
    torch = torch_gpu()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        # The first round opens the libraries, loads their kernels and makes a plan.
        for cycles in 0, 1 << 31:
            x, out = torch.rand(256, 128, device="cuda"), torch.zeros(256, 256, device="cuda")
            y = x.t().contiguous()
            stream.synchronize()
            torch.cuda._sleep(cycles)
            example.matmul(x, y, out=out)
            wave = torch.complex(out, torch.zeros_like(out))
            z = torch.from_dlpack(example.fft(wave))
            back = torch.from_dlpack(example.fft(z, inverse=True))
            if cycles:
                assert not stream.query(), "a call waited for the stream"
            stream.synchronize()
            # PyTorch may multiply with fewer digits, so the reference has more.
            assert torch.allclose(out.double(), x.double() @ y.double(), rtol=1e-4)
            assert torch.allclose(z, torch.fft.fft(wave), rtol=1e-3, atol=1e-2)
            assert torch.allclose(back, wave, rtol=1e-4, atol=1e-3)


def cupy_products_and_transforms():
    cupy = cupy_gpu()
    x = cupy.random.random((100, 64), dtype=cupy.float32)
    y = cupy.random.random((64, 50), dtype=cupy.float32)
    z = cupy.from_dlpack(example.matmul(x, y))
    assert cupy.allclose(z.astype(cupy.float64), x.astype(cupy.float64) @ y.astype(cupy.float64), rtol=1e-4)
    wave = z.astype(cupy.complex64)
    assert cupy.allclose(cupy.from_dlpack(example.fft(wave)), cupy.fft.fft(wave), rtol=1e-3, atol=1e-2)


def torch_streams_hand_over():
    """An array is made in one stream and turned into a tensor in another, which waits for the first one on the device."""
    torch = torch_gpu()
    n = 1 << 20
    a, b = torch.cuda.Stream(), torch.cuda.Stream()
    for cycles in 0, 1 << 30:
        with torch.cuda.stream(a):
            x = torch.zeros(n, device="cuda")
            torch.cuda._sleep(cycles)
            x += 3
            made = example.scale_add(x, x, 1.0)
        with torch.cuda.stream(b):
            z = torch.from_dlpack(made)
            z += 1
            if cycles:
                assert not a.query() and not b.query(), "a call waited for a stream"
        b.synchronize()
        assert (z == 7).all()
        torch.cuda.synchronize()


def torch_memory_stays_while_it_is_used():
    """If the caller drops tensors at once, their memory must not be reused before the kernel has read them."""
    torch = torch_gpu()
    n, results = 1 << 20, []
    for warm in True, False:
        torch.cuda._sleep(0 if warm else 1 << 30)
        for i in range(20):
            x, y = torch.full((n,), float(i), device="cuda"), torch.ones(n, device="cuda")
            z = example.scale_add(x, y, 2.0)
            del x, y
            results.append((i, torch.from_dlpack(z)))
            del z
            torch.full((n,), -1.0, device="cuda")
        torch.cuda.synchronize()
        for i, z in results:
            assert (z == 2 * i + 1).all(), i
        results.clear()


def torch_memory_stays_the_same():
    torch = torch_gpu()

    def rounds(count):
        for i in range(count):
            x = torch.ones(1 << 20, device="cuda")  # 4 MiB
            z = torch.from_dlpack(example.scale_add(x, x, 1.0))
            del x
            z += 1
            del z
            if i % 20 == 0:
                torch.cuda.synchronize()
        torch.cuda.synchronize()

    rounds(100)
    free, before = torch.cuda.mem_get_info()[0], resident()
    rounds(2000)
    less, grown = free - torch.cuda.mem_get_info()[0], resident() - before
    assert less < 256 << 20, f"{less >> 20} MiB less on the device after 2000 arrays of 8 MiB each"
    assert grown < 64 << 20, f"{grown >> 20} MiB more on the host after 2000 arrays"


def cupy_arrays_are_used_where_they_are():
    cupy = cupy_gpu()
    x = cupy.arange(12, dtype=cupy.float32).reshape(3, 4)
    y = cupy.full((3, 4), 100, dtype=cupy.float32)
    assert example.address(x) == x.data.ptr
    z = example.scale_add(x, y, 2.0)
    address = example.address(z)
    z = cupy.from_dlpack(z)
    assert z.data.ptr == address
    assert bool((z == 2 * x + y).all())
    out = cupy.zeros_like(x)
    assert example.scale_add(x, y, 3.0, out=out) is out
    assert bool((out == 3 * x + y).all())
    refused(ValueError, "elements are float64", example.scale_add, x, x.astype(cupy.float64), 1.0)
    refused(ValueError, "make it contiguous first", example.scale_add, x.T, x.T, 1.0)
    refused(ValueError, "copy one of them first", example.scale_add, x, cupy.asnumpy(x), 1.0)


def cupy_does_not_wait():
    """A kernel spins until the host sets a flag. We set it after all calls have returned, so none of them can have waited."""
    cupy = cupy_gpu()
    spin = cupy.RawKernel("extern \"C\" __global__ void spin(volatile int* flag) { while (*flag == 0) {} }", "spin")
    memory = cupy.cuda.alloc_pinned_memory(4)
    flag = np.frombuffer(memory, np.int32, 1)
    n, late = 1 << 20, []

    def give_up():
        late.append(True)
        flag[0] = 1

    for stream in cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True):
        with stream:
            for wait in False, True:
                x, y = cupy.zeros(n, dtype=cupy.float32), cupy.ones(n, dtype=cupy.float32)
                out = cupy.zeros(n, dtype=cupy.float32)
                stream.synchronize()
                flag[0] = 0 if wait else 1
                # If a call waited for the stream, it would wait for ever.
                backstop = threading.Timer(20, give_up)
                backstop.start()
                spin((1,), (1,), (np.uintp(memory.ptr),))
                x += 3
                z = cupy.from_dlpack(example.scale_add(x, y, 2.0))
                example.scale_add(z, y, 1.0, out=out)
                x += 1000
                z += 1
                assert not late, "a call waited for the stream"
                assert not wait or not stream.done
                flag[0] = 1
                stream.synchronize()
                backstop.cancel()
                assert bool((z == 8).all()) and bool((out == 8).all())
                del z


def cupy_and_the_array_interface():
    cupy = cupy_gpu()
    x = cupy.arange(1000, dtype=cupy.float32)
    y = cupy.ones(1000, dtype=cupy.float32)
    if not hasattr(x, "__cuda_array_interface__"):
        raise Skipped("this CuPy has no __cuda_array_interface__")
    assert example.address(OnlyInterface(x)) == x.data.ptr
    assert bool((cupy.from_dlpack(example.scale_add(OnlyInterface(x), y, 2.0)) == 2 * x + y).all())
    half = OnlyInterface(x[::2], data=(x.data.ptr, True))
    refused(ValueError, "make it contiguous first", example.scale_add, half, half, 1.0)
    refused(ValueError, "read-only", example.scale_add, x, x, 1.0, out=OnlyInterface(y, data=(y.data.ptr, True)))
    refused(ValueError, "does not allow stream 0", example.scale_add, OnlyInterface(x, stream=0), x, 1.0)
    refused(ValueError, "with a mask", example.scale_add, OnlyInterface(x, mask=x), x, 1.0)
    refused(ValueError, "elements are float64", example.scale_add, OnlyInterface(x.astype(cupy.float64)), x, 1.0)
    # The array was made in another stream than the kernel runs in, so the kernel has to wait.
    stream = cupy.cuda.Stream(non_blocking=True)
    other = cupy.cuda.Stream(non_blocking=True)
    with stream:
        x = cupy.zeros(1 << 24, dtype=cupy.float32)
        for _ in range(100):
            x += 1
        there = OnlyInterface(x, stream=stream.ptr)
    with other:
        z = cupy.from_dlpack(example.scale_add(there, there, 1.0, stream=other))
    other.synchronize()
    assert bool((z == 200).all())
    # CuPy destroys a stream with its last reference. Here that happens before the array of that stream goes.
    del there, stream, other
    gc.collect()
    del z
    references = sys.getrefcount(x)
    there = OnlyInterface(x)
    example.scale_add(there, there, 1.0)
    del there
    settle(lambda: sys.getrefcount(x) == references)


def torch_and_cupy_together():
    torch, cupy = torch_gpu(), cupy_gpu()
    x = torch.arange(1000, dtype=torch.float32, device="cuda")
    y = cupy.ones(1000, dtype=cupy.float32)
    cupy.cuda.Device().synchronize()
    torch.cuda.synchronize()
    z = example.scale_add(x, y, 2.0)
    z = example.scale_add(z, y, 1.0)
    z = cupy.from_dlpack(z)
    torch.cuda.synchronize()
    assert bool((z == cupy.from_dlpack(2 * x + 2)).all())


def gpu_and_cpu_streams_of_the_protocol():
    torch = torch_gpu()
    x = torch.ones(1000, device="cuda")
    own = torch.cuda.Stream()
    hip = bool(torch.version.hip)
    numbers = [None, -1, own.cuda_stream] + ([0] if hip else [1, 2])
    for number in numbers:
        capsule = example.scale_add(x, x, 1.0).__dlpack__(stream=number)
        torch.cuda.synchronize()
        assert torch.equal(torch.utils.dlpack.from_dlpack(capsule), 2 * x), number
    for number in [-2] + ([1, 2] if hip else [0]):
        refused(ValueError, f"`stream={number}`", example.scale_add(x, x, 1.0).__dlpack__, stream=number)
    for stream in own, own.cuda_stream:
        own.wait_stream(torch.cuda.current_stream())
        z = example.scale_add(x, x, 1.0, stream=stream)
        own.synchronize()
        assert torch.equal(torch.from_dlpack(z), 2 * x)
    refused(TypeError, "is not a stream", example.scale_add, x, x, 1.0, stream="a")


def interpreter_ends_with_a_gpu_at_work():
    torch_gpu()
    head = "import torch; import gpustream_example as example\nx = torch.ones(1 << 20, device='cuda')\n"
    head += "example.scale_add(x, x, 1.0)\ntorch.cuda._sleep(1 << 28)\n"
    for scene in [
        "kept = [example.scale_add(x, x, 1.0) for _ in range(10)]",
        "kept = [torch.from_dlpack(example.scale_add(x, x, 1.0)) for _ in range(10)]",
        "kept = example.scale_add(x, x, 1.0).__dlpack__()",
        "[example.scale_add(x.clone(), x.clone(), 1.0) for _ in range(100)]",
    ]:
        run = subprocess.run([sys.executable, "-c", head + scene], capture_output=True, text=True, timeout=120)
        assert run.returncode == 0, f"{scene}: {run.returncode}\n{run.stderr}"


TESTS = [
    numpy_arrays_are_used_where_they_are,
    arrays_of_any_shape,
    own_arrays_are_arguments_too,
    both_versions_of_dlpack,
    what_does_not_fit_is_refused,
    capsule_is_used_once,
    read_only_arrays_are_read,
    matrices_are_multiplied,
    the_last_dimension_is_transformed,
    either_side_may_go_first,
    threads_do_not_wait_for_each_other,
    python_runs_while_a_call_waits,
    memory_stays_the_same,
    interpreter_ends_whatever_is_alive,
    torch_on_the_cpu_works_too,
    torch_tensors_are_used_where_they_are,
    torch_errors_say_what_to_do,
    torch_does_not_wait,
    torch_products_and_transforms_do_not_wait,
    torch_streams_hand_over,
    torch_memory_stays_while_it_is_used,
    torch_memory_stays_the_same,
    cupy_arrays_are_used_where_they_are,
    cupy_does_not_wait,
    cupy_products_and_transforms,
    cupy_and_the_array_interface,
    torch_and_cupy_together,
    gpu_and_cpu_streams_of_the_protocol,
    interpreter_ends_with_a_gpu_at_work,
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--require", default="", help="fail if tests of these libraries would be skipped: torch,cupy")
    parser.add_argument("names", nargs="*", help="run only these tests")
    args = parser.parse_args()
    required = [name for name in args.require.split(",") if name]
    failures = 0
    for test in TESTS:
        name = test.__name__
        if args.names and name not in args.names:
            continue
        try:
            test()
            print(f"{name}: ok", flush=True)
        except Skipped as reason:
            needed = any(library in name for library in required) or (required and name.startswith(("gpu_", "interpreter_")))
            print(f"{name}: {'FAILED, ' if needed else ''}SKIPPED: {reason}", flush=True)
            failures += bool(needed)
        except Exception:
            import traceback

            print(f"{name}: FAILED", flush=True)
            traceback.print_exc()
            failures += 1
    print(f"{failures} failed")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
