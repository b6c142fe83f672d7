//! Shapes and strides, and which tensors are contiguous.

use dlpack_rs::ffi::DLTensor;
use gpustream::{Error, ErrorKind, Result};

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}

/// The extents of a tensor, and the total number of elements.
pub(crate) struct Shape {
    pub(crate) extents: Box<[usize]>,
    pub(crate) len: usize,
}

impl Shape {
    /// Checks that memory can hold this many elements of `size` bytes.
    pub(crate) fn new(extents: &[usize], size: usize) -> Result<Self> {
        // If one extent is zero, the tensor is empty, however large the others are.
        let len = if extents.contains(&0) {
            Some(0)
        } else {
            extents.iter().try_fold(1usize, |len, extent| len.checked_mul(*extent))
        };
        let fits = |len: &usize| len.checked_mul(size).is_some_and(|bytes| isize::try_from(bytes).is_ok());
        let has_i64 = extents.iter().all(|extent| i64::try_from(*extent).is_ok());
        match len.filter(fits) {
            Some(len) if has_i64 => Ok(Self { extents: extents.into(), len }),
            _ => Err(invalid(format!(
                "a tensor of shape {extents:?} with elements of {size} bytes is larger than memory can be"
            ))),
        }
    }

    /// Reads the shape of a contiguous tensor in row-major order.
    ///
    /// # Safety
    /// Shape and strides must each have `ndim` numbers, or be null.
    pub(crate) unsafe fn of(tensor: &DLTensor, size: usize) -> Result<Self> {
        // SAFETY: the caller's promise.
        let (shape, strides) =
            unsafe { (numbers(tensor.shape, tensor.ndim), numbers(tensor.strides, tensor.ndim)) };
        let Some(shape) = shape else {
            return Err(invalid(format!(
                "the tensor has {} dimensions, but no shape: report this bug to the library that made it",
                tensor.ndim
            )));
        };
        let extents: Option<Vec<usize>> = shape.iter().map(|extent| usize::try_from(*extent).ok()).collect();
        let Some(extents) = extents else {
            return Err(invalid(format!(
                "the tensor's shape {shape:?} has a negative extent: report this bug to the library that made it"
            )));
        };
        let this = Self::new(&extents, size)?;
        match strides {
            Some(strides) if !this.is_contiguous(strides) => Err(invalid(format!(
                "the tensor of shape {shape:?} has strides {strides:?}, but only {:?} is one run of elements in row-major order: \
                 make it contiguous first (`contiguous()`, `ascontiguousarray()`)",
                this.strides()
            ))),
            _ => Ok(this),
        }
    }

    /// Returns the strides in elements.
    pub(crate) fn strides(&self) -> Vec<i64> {
        let mut strides = vec![1i64; self.extents.len()];
        for dimension in (1..strides.len()).rev() {
            // If the tensor has elements, this cannot overflow. If it has none, its strides do not matter.
            strides[dimension - 1] = strides[dimension].wrapping_mul(self.extents[dimension] as i64);
        }
        strides
    }

    /// Returns true if these strides are the shape's own. In a dimension with at most one element, the stride
    /// does not matter.
    fn is_contiguous(&self, strides: &[i64]) -> bool {
        let own = self.strides();
        let mut dimensions = self.extents.iter().zip(strides.iter().zip(&own));
        self.len == 0 || dimensions.all(|(extent, (stride, own))| *extent == 1 || stride == own)
    }
}

/// Returns the `count` numbers at an address, or `None` if the address is null.
///
/// # Safety
/// There must be that many numbers, or the address must be null.
unsafe fn numbers<'a>(address: *const i64, count: i32) -> Option<&'a [i64]> {
    match usize::try_from(count) {
        Ok(0) => Some(&[]),
        // SAFETY: the caller's promise.
        Ok(count) if !address.is_null() => Some(unsafe { std::slice::from_raw_parts(address, count) }),
        _ => None,
    }
}
