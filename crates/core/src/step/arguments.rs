//! The arguments of a kernel that is kept: their values, beside the addresses by which drivers take them.
#![allow(
    clippy::inline_always,
    reason = "the comparison is most of the cost of an operation that is held back"
)]

use std::ffi::c_void;
use std::sync::Arc;

/// The unit of the values: each begins at a multiple of 16 bytes, as the device's vectors want it.
type Unit = u128;

/// The arguments of a kernel.
pub(super) struct Arguments {
    /// The size of each argument, in bytes.
    sizes: Arc<[usize]>,
    /// The address of each argument's value.
    pointers: Vec<*mut c_void>,
    /// The values. Reached by `pointers` alone, and never moved.
    _values: Vec<Unit>,
}

impl Clone for Arguments {
    fn clone(&self) -> Self {
        // SAFETY: our values have these sizes.
        unsafe { Self::new(&self.sizes, &self.pointers) }
    }
}

impl Arguments {
    /// Copies arguments of these sizes.
    ///
    /// # Safety
    /// Each of `args` points to a value of the size at its index; there are no fewer sizes.
    pub(super) unsafe fn new(sizes: &Arc<[usize]>, args: &[*mut c_void]) -> Self {
        let units = |size: &usize| size.div_ceil(size_of::<Unit>());
        let mut values: Vec<Unit> = vec![0; sizes.iter().map(units).sum()];
        let start = values.as_mut_ptr();
        let mut end = 0;
        let place = |size| {
            let at = end;
            end += units(size);
            // SAFETY: the list has the units of all arguments.
            unsafe { start.add(at) }.cast::<c_void>()
        };
        let pointers = sizes.iter().map(place).collect();
        let mut new = Self { sizes: sizes.clone(), pointers, _values: values };
        // SAFETY: by this function's contract.
        unsafe { new.store(args) };
        new
    }

    /// Returns the address of each argument's value.
    #[inline]
    pub(super) fn pointers(&self) -> &[*mut c_void] {
        &self.pointers
    }

    #[inline]
    pub(super) fn sizes(&self) -> &Arc<[usize]> {
        &self.sizes
    }

    /// Takes other values.
    ///
    /// # Safety
    /// As for [`new`](Self::new), with these arguments' sizes.
    pub(super) unsafe fn store(&mut self, args: &[*mut c_void]) {
        for ((&to, &from), &size) in self.pointers.iter().zip(args).zip(&*self.sizes) {
            // SAFETY: both have that size, by this function's contract and since `new` made room; ours is aligned to 16
            // bytes, the caller's perhaps not.
            unsafe {
                match size {
                    8 => to.cast::<u64>().write(from.cast::<u64>().read_unaligned()),
                    4 => to.cast::<u32>().write(from.cast::<u32>().read_unaligned()),
                    size => to.cast::<u8>().copy_from_nonoverlapping(from.cast::<u8>(), size),
                }
            }
        }
    }

    /// Returns whether the values are those of `args`.
    ///
    /// # Safety
    /// As for [`store`](Self::store).
    #[inline(always)]
    pub(super) unsafe fn are(&self, args: &[*mut c_void]) -> bool {
        for ((&kept, &other), &size) in self.pointers.iter().zip(args).zip(&*self.sizes) {
            // SAFETY: as in `store`.
            let same = unsafe {
                match size {
                    8 => kept.cast::<u64>().read() == other.cast::<u64>().read_unaligned(),
                    4 => kept.cast::<u32>().read() == other.cast::<u32>().read_unaligned(),
                    size => {
                        std::slice::from_raw_parts(kept.cast::<u8>().cast_const(), size)
                            == std::slice::from_raw_parts(other.cast::<u8>().cast_const(), size)
                    }
                }
            };
            if !same {
                return false;
            }
        }
        true
    }
}
