//! Copies that change the element type: `f32` from and to `f16`, `bf16` and `f64`.

use std::panic::Location;

use gpustream::{AsView, AsViewMut, Buffer, CallSite, Device, Error, ErrorKind, Plain, Result, Stream};

mod bindings {
    gpustream::include_kernels!("convert");
}
pub use bindings::{HasConvert, Kernels};

/// Converting copies, loaded on one device.
///
/// ```
/// use gpustream::Device;
/// use gpustream::half::f16;
/// use gpustream_kernels::convert::Convert;
///
/// let device = Device::open("cpu")?;
/// let (stream, convert) = (device.stream()?, Convert::load(&device)?);
/// let x = stream.upload(&[1.0f32, 0.1, 1e6])?;
/// let mut half = stream.alloc::<f16>(3)?;
/// convert.copy(&stream, &x, &mut half)?;
/// assert_eq!(stream.download(&half)?, [f16::ONE, f16::from_f32(0.1), f16::INFINITY]);
/// let wide: Vec<f32> = convert.download(&stream, &half)?;
/// assert_eq!(wide, [1.0, 0.099975586, f32::INFINITY]);
/// # Ok::<(), gpustream::Error>(())
/// ```
#[derive(Debug)]
pub struct Convert {
    kernels: Kernels,
}

impl Convert {
    /// Loads the kernels.
    ///
    /// # Errors
    /// The errors of [`Device::load_module`].
    pub fn load(device: &Device) -> Result<Self> {
        Ok(Self { kernels: Kernels::load(device)? })
    }

    /// Copies `src` to `dst` and converts each element, in stream order. Rounds to nearest, ties to even. If a value is too large
    /// it becomes infinite; a NaN stays a NaN.
    ///
    /// Both may be device, pinned or managed memory. The kernel reads and writes pinned memory over the bus, so we copy
    /// no element twice.
    ///
    /// # Errors
    /// [`ErrorKind::ArgumentMismatch`] if the lengths differ.
    #[track_caller]
    pub fn copy<T: HasConvert<U>, U: Plain>(
        &self,
        stream: &Stream,
        src: &(impl AsView<T> + ?Sized),
        dst: &mut (impl AsViewMut<U> + ?Sized),
    ) -> Result<()> {
        let (src, mut dst) = (src.view(), dst.view_mut());
        if src.len() != dst.len() {
            let operation = CallSite { label: "convert", location: Location::caller() };
            return Err(Error::new(
                ErrorKind::ArgumentMismatch,
                format!(
                    "a conversion of {} elements into {}: give views of one length",
                    src.len(),
                    dst.len()
                ),
            )
            .with_call_site(operation));
        }
        self.kernels.convert(stream, &src, &mut dst, src.len())
    }

    /// Uploads `values` as elements of another type. When the call returns it has read the slice; the device converts in stream
    /// order.
    ///
    /// # Errors
    /// The errors of [`Stream::upload`].
    #[track_caller]
    pub fn upload<T: HasConvert<U>, U: Plain>(&self, stream: &Stream, values: &[T]) -> Result<Buffer<U>> {
        let source = stream.upload(values)?;
        let mut converted = stream.alloc(values.len())?;
        self.copy(stream, &source, &mut converted)?;
        Ok(converted)
    }

    /// Downloads `src` as elements of another type. Blocks, like [`Stream::download`].
    ///
    /// # Errors
    /// The errors of [`Stream::download`].
    #[track_caller]
    pub fn download<T: HasConvert<U>, U: Plain>(
        &self,
        stream: &Stream,
        src: &(impl AsView<T> + ?Sized),
    ) -> Result<Vec<U>> {
        let src = src.view();
        // A recording cannot contain the download, but it would keep the conversion before it. So we must check first.
        stream.download(&src.slice(..0)?)?;
        let mut converted = stream.alloc(src.len())?;
        self.copy(stream, &src, &mut converted)?;
        stream.download(&converted)
    }
}
