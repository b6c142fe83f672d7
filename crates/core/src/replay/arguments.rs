//! The arguments of a deferred kernel: their values, and pointers to these, because a driver takes pointers.
#![allow(
    clippy::inline_always,
    reason = "the comparison is most of the cost of an operation that is held back"
)]

use std::ffi::c_void;
use std::slice;
use std::sync::Arc;

/// The alignment of values. It makes values of four and eight bytes quick to compare. No value needs more, because backends
/// copy it to the place that its kernel wants.
const STEP: usize = 16;

/// A cache line. After a driver's call, each line that we touch costs more than the instructions that use it.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[allow(dead_code, reason = "reached by addresses alone")] [u8; 64]);

/// The arguments of a kernel.
pub(super) struct Arguments {
    /// The size of each argument, in bytes.
    sizes: Arc<[usize]>,
    /// First the address of each value, then the values. This must never move, because the addresses point into it.
    memory: Vec<Line>,
}

/// The value of a deferred argument.
#[derive(Clone, Copy)]
pub(super) struct Value {
    at: *mut c_void,
    /// In bytes.
    pub(super) size: usize,
}

impl Clone for Arguments {
    fn clone(&self) -> Self {
        // SAFETY: our values have these sizes.
        unsafe { Self::new(&self.sizes, self.pointers()) }
    }
}

impl Arguments {
    /// Copies arguments of these sizes.
    ///
    /// # Safety
    /// There are as many `args` as sizes, and each points to a value of the size at its index.
    pub(super) unsafe fn new(sizes: &Arc<[usize]>, args: &[*mut c_void]) -> Self {
        let first = (sizes.len() * size_of::<*mut c_void>()).next_multiple_of(STEP);
        let bytes = sizes.iter().fold(first, |end, size| end + size.next_multiple_of(STEP));
        let mut memory = vec![Line([0; 64]); bytes.div_ceil(size_of::<Line>())];
        let pointers: *mut *mut c_void = memory.as_mut_ptr().cast();
        let mut end = first;
        for (index, size) in sizes.iter().enumerate() {
            // SAFETY: the memory has room for all addresses and, after them, for all values.
            unsafe { pointers.add(index).write(pointers.byte_add(end).cast()) };
            end += size.next_multiple_of(STEP);
        }
        let mut new = Self { sizes: sizes.clone(), memory };
        // SAFETY: by this function's contract.
        unsafe { new.store(args) };
        new
    }

    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.sizes.len()
    }

    /// Returns a pointer to each value.
    #[inline(always)]
    pub(super) fn pointers(&self) -> &[*mut c_void] {
        // SAFETY: the memory begins with as many addresses.
        unsafe { slice::from_raw_parts(self.memory.as_ptr().cast(), self.len()) }
    }

    #[inline]
    pub(super) fn sizes(&self) -> &Arc<[usize]> {
        &self.sizes
    }

    #[inline(always)]
    pub(super) fn values(&self) -> impl Iterator<Item = Value> {
        self.pointers().iter().zip(&*self.sizes).map(|(&at, &size)| Value { at, size })
    }

    /// Copies other values in place of these.
    ///
    /// # Safety
    /// As for [`new`](Self::new), with these arguments' sizes.
    pub(super) unsafe fn store(&mut self, args: &[*mut c_void]) {
        // SAFETY: by this function's contract, and `self` is borrowed mutably.
        self.values().zip(args).for_each(|(value, &from)| unsafe { value.set(from.cast()) });
    }

    /// Returns true if the values equal those of `args`.
    ///
    /// # Safety
    /// As for [`store`](Self::store).
    pub(super) unsafe fn are(&self, args: &[*mut c_void]) -> bool {
        // SAFETY: by this function's contract.
        self.values().zip(args).all(|(value, &other)| unsafe { value.is(other.cast()) })
    }
}

impl Value {
    /// Copies the value at `from`, which need not be aligned. Returns true if it differs from the old value.
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

    /// Copies the value at `from`, which need not be aligned.
    ///
    /// # Safety
    /// `from` has this size, and nothing else refers to this value.
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

    /// Returns true if the value equals the one at `other`, which need not be aligned.
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
                // We don't call a function here, because then the loop over a kernel's arguments would lose its registers.
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
