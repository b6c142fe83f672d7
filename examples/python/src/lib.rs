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
    use pyo3::exceptions::PyValueError;
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::array::Array;
    use crate::device::{self, error};
    use crate::input::{self, Input};
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
        let arrays: Vec<_> = [x, y].into_iter().chain(&out).collect();
        let device = device::of_all(py, &arrays)?;
        let current = Current::find(device, &arrays, stream)?;
        let x = Input::take(x, &current)?;
        let y = Input::take(y, &current)?;
        let target = out.as_ref().map(|out| Input::take(out, &current)).transpose()?;
        let made = py.detach(|| {
            let stream = &current.stream;
            let (x, y) = (x.ready(stream)?, y.ready(stream)?);
            if x.shape() != y.shape() {
                return Err(input::shapes_differ("y", y.shape(), x.shape()));
            }
            let n = x.view().len();
            let made = if let Some(target) = target {
                let mut target = target.ready(stream)?;
                if target.shape() != x.shape() {
                    return Err(input::shapes_differ("out", target.shape(), x.shape()));
                }
                input::check_apart(&target.view(), &[x.view(), y.view()])?;
                device.kernels.scale_add(stream, a, &x.view(), &y.view(), &mut target.view_mut()?, n)?;
                None
            } else {
                let mut made = stream.alloc::<f32>(n)?;
                device.kernels.scale_add(stream, a, &x.view(), &y.view(), &mut made, n)?;
                Some((made, x.shape().to_vec()))
            };
            if device.is_cpu() {
                // The caller may change the arrays as soon as this returns.
                stream.synchronize()?;
            }
            Ok(made)
        });
        match (made.map_err(error)?, out) {
            (Some((buffer, shape)), _) => {
                Ok(Bound::new(py, Array::new(buffer, shape, device, current))?.into_any())
            }
            (None, Some(out)) => Ok(out),
            (None, None) => Err(PyValueError::new_err("no array was made")),
        }
    }

    /// Returns the address that kernels get for the array's memory.
    #[pyfunction]
    #[pyo3(signature = (x, *, stream=None))]
    fn address(py: Python<'_>, x: &Bound<'_, PyAny>, stream: Option<&Bound<'_, PyAny>>) -> PyResult<usize> {
        let device = device::of_all(py, &[x])?;
        let current = Current::find(device, &[x], stream)?;
        let x = Input::take(x, &current)?;
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
