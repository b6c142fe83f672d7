//! The memory that CUPTI writes records to: it asks for a buffer, and hands it back full.
//!
//! CUPTI calls from the thread that submits work, from a thread of its own, and at the process's end from whatever thread
//! ends it. So the two callbacks take one short lock, allocate a bounded number of times, and cannot panic; the data
//! that they use is never torn down.

use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;
use std::sync::Mutex;

use cudarc::driver::sys::CUcontext;
use gpustream_hal::lock::lock;

/// The length of a buffer, in bytes: some three thousand operations. CUPTI fills a buffer with zeros on the thread that
/// submits work.
const SIZE: usize = 1 << 20;
/// The most buffers. CUPTI drops records while it gets none, and counts these. Newer versions use one for each thread.
const MOST: usize = 128;
/// The alignment that CUPTI asks for.
const LAYOUT: Layout = match Layout::from_size_align(SIZE, 8) {
    Ok(layout) => layout,
    Err(_) => panic!("a layout that is valid"),
};

/// A buffer.
struct Buffer {
    /// The memory, of [`LAYOUT`].
    memory: NonNull<u8>,
    state: BufferOwner,
}

// SAFETY: the memory is plain bytes, of one owner at a time as `BufferOwner` says.
unsafe impl Send for Buffer {}

/// The owner of a buffer's bytes.
#[derive(Clone, Copy, PartialEq)]
enum BufferOwner {
    Free,
    /// CUPTI writes to it.
    Lent,
    /// CUPTI gave it back with so many bytes of records, as the buffer of this number.
    Full {
        bytes: usize,
        number: u64,
    },
    /// A `Full` value reads it.
    Read,
}

/// The buffers of the process, and how many came back.
struct Buffers {
    all: Vec<Buffer>,
    came: u64,
}

static BUFFERS: Mutex<Buffers> = Mutex::new(Buffers { all: Vec::new(), came: 0 });

impl Buffers {
    /// Returns a free buffer; a new one where there is none and room for one.
    fn lend(&mut self) -> Option<NonNull<u8>> {
        if let Some(free) = self.all.iter_mut().find(|buffer| buffer.state == BufferOwner::Free) {
            free.state = BufferOwner::Lent;
            return Some(free.memory);
        }
        if self.all.len() >= MOST || self.all.try_reserve(1).is_err() {
            return None;
        }
        // SAFETY: the layout is not empty.
        let memory = NonNull::new(unsafe { alloc(LAYOUT) })?;
        self.all.push(Buffer { memory, state: BufferOwner::Lent });
        Some(memory)
    }

    /// Takes a buffer back. One that was not lent is another tool's, whose callbacks were there before or after ours.
    fn take_back(&mut self, memory: *mut u8, bytes: usize) {
        let is_lent =
            |buffer: &&mut Buffer| buffer.memory.as_ptr() == memory && buffer.state == BufferOwner::Lent;
        if let Some(buffer) = self.all.iter_mut().find(is_lent) {
            self.came += 1;
            let (bytes, number) = (bytes.min(SIZE), self.came);
            buffer.state = if bytes == 0 { BufferOwner::Free } else { BufferOwner::Full { bytes, number } };
        }
    }
}

/// Gives CUPTI a buffer for as many records as go into it (`CUpti_BuffersCallbackRequestFunc`).
///
/// # Safety
/// The pointers are to variables.
pub(crate) unsafe extern "C" fn requested(memory: *mut *mut u8, bytes: *mut usize, most_records: *mut usize) {
    let lent = lock(&BUFFERS).lend();
    // SAFETY: by this function's contract.
    unsafe {
        memory.write(lent.map_or(std::ptr::null_mut(), NonNull::as_ptr));
        bytes.write(if lent.is_some() { SIZE } else { 0 });
        most_records.write(0);
    }
}

/// Takes a buffer with records back (`CUpti_BuffersCallbackCompleteFunc`).
///
/// # Safety
/// CUPTI leaves the buffer alone from now on. No reference is made from the pointer unless it is a buffer that was lent.
pub(crate) unsafe extern "C" fn completed(_: CUcontext, _: u32, memory: *mut u8, _size: usize, valid: usize) {
    lock(&BUFFERS).take_back(memory, valid);
}

/// Whether CUPTI holds buffers.
pub(crate) fn any_lent() -> bool {
    lock(&BUFFERS).all.iter().any(|buffer| buffer.state == BufferOwner::Lent)
}

/// Frees the memory that nobody uses.
pub(crate) fn trim() {
    lock(&BUFFERS).all.retain(|buffer| {
        let is_free = buffer.state == BufferOwner::Free;
        if is_free {
            // SAFETY: allocated with this layout; nobody has the memory of a free buffer.
            unsafe { dealloc(buffer.memory.as_ptr(), LAYOUT) };
        }
        !is_free
    });
}

/// A buffer that came back, to be read. It may be lent again once this value is dropped.
pub(crate) struct Full {
    memory: NonNull<u8>,
    bytes: usize,
}

impl Full {
    /// Takes the one that came back first.
    pub(crate) fn next() -> Option<Self> {
        let mut buffers = lock(&BUFFERS);
        let full = buffers.all.iter_mut().filter_map(|buffer| match buffer.state {
            BufferOwner::Full { bytes, number } => Some((number, bytes, buffer)),
            _ => None,
        });
        let (_, bytes, buffer) = full.min_by_key(|(number, ..)| *number)?;
        buffer.state = BufferOwner::Read;
        Some(Self { memory: buffer.memory, bytes })
    }

    /// Returns the place of the records, and how many bytes of them there are.
    pub(crate) fn records(&self) -> (*mut u8, usize) {
        (self.memory.as_ptr(), self.bytes)
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        if let Some(buffer) = lock(&BUFFERS).all.iter_mut().find(|buffer| buffer.memory == self.memory) {
            buffer.state = BufferOwner::Free;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> *mut u8 {
        let (mut memory, mut bytes, mut most) = (std::ptr::null_mut(), 1, 1);
        // SAFETY: the pointers are to locals.
        unsafe { requested(&raw mut memory, &raw mut bytes, &raw mut most) };
        assert_eq!((bytes, most), (if memory.is_null() { 0 } else { SIZE }, 0));
        memory
    }

    fn complete(memory: *mut u8, bytes: usize) {
        // SAFETY: nothing else has the buffer.
        unsafe { completed(std::ptr::null_mut(), 0, memory, SIZE, bytes) };
    }

    /// All in one test: there is one set of buffers in the process.
    #[test]
    fn buffers_are_bounded_used_again_and_read_in_the_order_in_which_they_came() {
        let lent: Vec<_> = (0..MOST).map(|_| request()).collect();
        assert!(lent.iter().all(|memory| !memory.is_null() && memory.addr() % 8 == 0));
        assert!(request().is_null(), "no more than {MOST}");
        for (memory, bytes) in [(lent[7], 10), (lent[2], 20), (lent[9], SIZE + 1)] {
            complete(memory, bytes);
        }
        complete(lent[7], 99);
        complete(std::ptr::dangling_mut(), 8);
        complete(lent[3], 0);
        let read: Vec<_> = std::iter::from_fn(Full::next).collect();
        let places: Vec<_> = read.iter().map(Full::records).collect();
        assert_eq!(places, [(lent[7], 10), (lent[2], 20), (lent[9], SIZE)]);
        assert_eq!(request(), lent[3], "an empty one is free at once");
        assert!(request().is_null(), "one that is read is not lent");
        drop(read);
        assert!([lent[7], lent[2], lent[9]].contains(&request()));
        for &memory in &lent {
            complete(memory, 0);
        }
        assert!(!any_lent());
        trim();
        assert!(lock(&BUFFERS).all.is_empty());
    }
}
