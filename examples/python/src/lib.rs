//! How to write a Python module with your own kernel: it takes arrays of PyTorch, CuPy, NumPy and other libraries that speak
//! DLPack. `README.md` says how you build and use it.
//!
//! A call takes arrays without a copy, enqueues the kernel in the caller's current stream, and returns an array that any of
//! these libraries can take over. On a GPU nothing here waits for the device. On the CPU a call waits until the kernel is
//! done, because arrays have no streams there.
//!
//! **The interpreter's lock.** We release it around every call into gpustream (`Python::detach`). Otherwise all of Python
//! would stand still while a thread waits for the device or for a lock inside gpustream. gpustream deletes arrays on its own
//! thread. NumPy's and CuPy's deleters take the interpreter's lock there, and that is safe because gpustream holds none of
//! its own locks meanwhile.

mod array;
mod call;
mod capsule;
mod device;
mod input;
mod lease;
mod stream;

use pyo3::prelude::*;

mod scale_add {
    gpustream::include_kernels!("scale_add");
}

#[pymodule]
mod gpustream_example {
    use gpustream_math::Complex;
    use gpustream_math::prelude::*;
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::array::Array;
    use crate::call::call;
    use crate::device::{self, error};
    use crate::input::{Input, shapes_differ};
    use crate::lease;
    use crate::stream::Current;

    /// Returns a * x + y, in new memory or in `out`.
    ///
    /// The arrays must have float32 elements, be contiguous, and be on one device. The kernel runs in `stream` (a number, or
    /// a PyTorch or CuPy stream). Without one it runs in the current stream of the arrays' library. The call returns as soon
    /// as the kernel is enqueued. On the CPU it returns when the kernel is done.
    #[pyfunction]
    #[pyo3(signature = (x, y, a, *, out=None, stream=None))]
    fn scale_add<'py>(
        py: Python<'py>,
        x: &Bound<'py, PyAny>,
        y: &Bound<'py, PyAny>,
        a: f32,
        out: Option<Bound<'py, PyAny>>,
        stream: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let same = |[x, y]: [&[usize]; 2]| {
            if x == y {
                return Ok(x.to_vec());
            }
            Err(shapes_differ(format!("`y` has shape {y:?} and `x` has {x:?}; give arrays of one shape")))
        };
        call::<f32, 2>(py, [x, y], out, stream, same, |device, stream, [x, y], mut to| {
            let n = x.view().len();
            device.kernels.scale_add(stream, a, &x.view(), &y.view(), &mut to, n)
        })
    }

    /// Returns the matrix product of `x` and `y`, two float32 arrays with two dimensions. Otherwise like `scale_add`. cuBLAS or
    /// hipBLAS computes it; the first call on a device opens that library, which takes up to a second.
    #[pyfunction]
    #[pyo3(signature = (x, y, *, out=None, stream=None))]
    fn matmul<'py>(
        py: Python<'py>,
        x: &Bound<'py, PyAny>,
        y: &Bound<'py, PyAny>,
        out: Option<Bound<'py, PyAny>>,
        stream: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let product = |shapes: [&[usize]; 2]| match shapes {
            [&[m, k], &[again, n]] if k == again => Ok(vec![m, n]),
            [x, y] => Err(shapes_differ(format!(
                "`x` has shape {x:?} and `y` has {y:?}; give matrices of shapes (m, k) and (k, n)"
            ))),
        };
        call::<f32, 2>(py, [x, y], out, stream, product, |_, stream, [x, y], mut to| {
            // `product` has seen that both have two dimensions.
            let (&[m, k], &[_, n]) = (x.shape(), y.shape()) else { return Ok(()) };
            let (x, y) = (x.view(), y.view());
            stream.gemm(
                MatrixView::new(&x, m, k)?,
                MatrixView::new(&y, k, n)?,
                MatrixViewMut::new(&mut to, m, n)?,
            )
        })
    }

    /// Returns the Fourier transforms of `x` along its last dimension, or the inverse ones, scaled as `numpy.fft` scales them. The
    /// elements must be complex64. Otherwise like `scale_add`. cuFFT or hipFFT computes it; the first call of a shape makes a plan,
    /// which takes up to half a second.
    #[pyfunction]
    #[pyo3(signature = (x, *, inverse=false, out=None, stream=None))]
    fn fft<'py>(
        py: Python<'py>,
        x: &Bound<'py, PyAny>,
        inverse: bool,
        out: Option<Bound<'py, PyAny>>,
        stream: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let same = |[x]: [&[usize]; 1]| match x {
            [] | [.., 0] => {
                Err(shapes_differ(format!("`x` has shape {x:?}; its last dimension needs an element")))
            }
            x => Ok(x.to_vec()),
        };
        call::<Complex<f32>, 1>(py, [x], out, stream, same, |_, stream, [x], mut to| {
            let len = x.shape().last().copied().unwrap_or(1);
            let shape = FftShape::new_1d(len).batch(x.view().len() / len);
            let direction = if inverse { Direction::Inverse } else { Direction::Forward };
            stream.fft(&shape, direction, &x.view(), &mut to)?;
            // The libraries leave the scale to us.
            if inverse { stream.scal(Complex::from(1.0 / len as f32), &mut to) } else { Ok(()) }
        })
    }

    /// Returns the address that kernels get for the array's memory.
    #[pyfunction]
    #[pyo3(signature = (x, *, stream=None))]
    fn address(py: Python<'_>, x: &Bound<'_, PyAny>, stream: Option<&Bound<'_, PyAny>>) -> PyResult<usize> {
        let device = device::of_all(py, &[x])?;
        let current = Current::find(device, &[x], stream)?;
        let x = Input::<f32>::take(x, &current)?;
        py.detach(|| Ok(x.ready(&current.stream)?.view().as_raw().0)).map_err(error)
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        // Deleters need the interpreter, so it must not end before they have run.
        let atexit = module.py().import("atexit")?;
        atexit.call_method1("register", (wrap_pyfunction!(lease::wait_for_all, module)?,))?;
        Ok(())
    }
}
