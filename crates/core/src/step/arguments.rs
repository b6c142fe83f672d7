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
    /// Both again, for a walk with one pointer.
    values: Vec<Value>,
    /// The values' memory. Reached by the addresses alone, and never moved.
    _units: Vec<Unit>,
}

/// The value of a kept argument.
#[derive(Clone, Copy)]
pub(super) struct Value {
    at: *mut c_void,
    /// In bytes.
    pub(super) size: usize,
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
    /// Each of `args` points to a value of the size at its index, of which there are as many.
    pub(super) unsafe fn new(sizes: &Arc<[usize]>, args: &[*mut c_void]) -> Self {
        let units = |size: usize| size.div_ceil(size_of::<Unit>());
        let mut memory: Vec<Unit> = vec![0; sizes.iter().map(|&size| units(size)).sum()];
        let start = memory.as_mut_ptr();
        let mut end = 0;
        let place = |&size: &usize| {
            // SAFETY: the memory has the units of all arguments.
            let at = unsafe { start.add(end) }.cast();
            end += units(size);
            Value { at, size }
        };
        let values: Vec<Value> = sizes.iter().map(place).collect();
        let pointers = values.iter().map(|value| value.at).collect();
        let mut new = Self { sizes: sizes.clone(), pointers, values, _units: memory };
        // SAFETY: by this function's contract.
        unsafe { new.store(args) };
        new
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.pointers.len()
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

    #[inline(always)]
    pub(super) fn values(&self) -> impl Iterator<Item = Value> {
        self.values.iter().copied()
    }

    /// Takes other values.
    ///
    /// # Safety
    /// As for [`new`](Self::new), with these arguments' sizes.
    pub(super) unsafe fn store(&mut self, args: &[*mut c_void]) {
        // SAFETY: by this function's contract; nobody else has the values.
        self.values().zip(args).for_each(|(value, &from)| unsafe { value.set(from.cast()) });
    }

    /// Returns whether the values are those of `args`.
    ///
    /// # Safety
    /// As for [`store`](Self::store).
    pub(super) unsafe fn are(&self, args: &[*mut c_void]) -> bool {
        // SAFETY: by this function's contract.
        self.values().zip(args).all(|(value, &other)| unsafe { value.is(other.cast()) })
    }
}

impl Value {
    /// Takes the value that `from` points to, which need not be aligned. Returns whether it is another one.
    ///
    /// # Safety
    /// As for [`set`](Self::set).
    #[inline(always)]
    pub(super) unsafe fn replace(self, from: *const u8) -> bool {
        // SAFETY: by this function's contract.
        unsafe {
            let differs = !self.is(from);
            if differs {
                self.set(from);
            }
            differs
        }
    }

    /// Takes the value that `from` points to, which need not be aligned.
    ///
    /// # Safety
    /// `from` has this size, and nobody else has this value.
    #[inline(always)]
    unsafe fn set(self, from: *const u8) {
        // SAFETY: by this function's contract; ours is aligned to 16 bytes.
        unsafe {
            match self.size {
                8 => self.at.cast::<u64>().write(from.cast::<u64>().read_unaligned()),
                4 => self.at.cast::<u32>().write(from.cast::<u32>().read_unaligned()),
                size => self.at.cast::<u8>().copy_from_nonoverlapping(from, size),
            }
        }
    }

    /// Returns whether the value is the one that `other` points to, which need not be aligned.
    ///
    /// # Safety
    /// `other` has this size.
    #[inline(always)]
    unsafe fn is(self, other: *const u8) -> bool {
        // SAFETY: by this function's contract; ours is aligned to 16 bytes.
        unsafe {
            match self.size {
                8 => self.at.cast::<u64>().read() == other.cast::<u64>().read_unaligned(),
                4 => self.at.cast::<u32>().read() == other.cast::<u32>().read_unaligned(),
                // Without a call, which would cost the loop over a kernel's arguments its registers.
                size => (0..size).all(|at| self.at.cast::<u8>().add(at).read() == other.add(at).read()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_have_values_of_their_own() {
        let sizes: Arc<[usize]> = Arc::new([4, 8, 3, 32]);
        let (mut a, mut b, mut c, mut d) = (7u32, 8u64, [1u8, 2, 3], [9u64; 4]);
        let args = [(&raw mut a).cast(), (&raw mut b).cast(), (&raw mut c).cast(), (&raw mut d).cast()];
        // SAFETY: the arguments have these sizes.
        unsafe {
            let mut first = Arguments::new(&sizes, &args);
            let second = first.clone();
            for changed in 0..args.len() {
                args[changed].cast::<u8>().add(sizes[changed] - 1).write(5);
                assert!(!first.are(&args));
                first.store(&args);
                assert!(first.are(&args) && !second.are(&args));
            }
            let moved = Box::new(first);
            assert!(moved.are(&args) && moved.clone().are(moved.pointers()));
            assert!(moved.pointers().iter().all(|value| value.addr().is_multiple_of(16)));
        }
    }
}
