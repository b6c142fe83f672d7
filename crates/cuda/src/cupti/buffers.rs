//! The memory that CUPTI writes records to. It asks us for a buffer, and returns it full.
//!
//! CUPTI calls us from the thread that submits work, from a thread of its own, and when the process ends from the thread that
//! ends it. So our two callbacks take one short lock, allocate a bounded number of times, and cannot panic. We never tear down
//! the data that they use.

use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;
use std::sync::Mutex;

use cudarc::driver::sys::CUcontext;
use gpustream_hal::lock::lock;

/// How many bytes a buffer has: enough for about three thousand operations. CUPTI fills a buffer with zeros on the thread that
/// submits work, so we cannot make it much larger.
const SIZE: usize = 1 << 20;
/// How many buffers we make. If CUPTI gets none, it drops records and counts them. Newer versions use one buffer for each thread.
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

// SAFETY: the memory is plain bytes, and `BufferOwner` says who may use them.
unsafe impl Send for Buffer {}

/// The owner of the bytes in a buffer.
#[derive(Clone, Copy, PartialEq)]
enum BufferOwner {
    Free,
    /// CUPTI writes to it.
    Lent,
    /// CUPTI returned it with this many bytes of records; the other number is its place in the order of return.
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
    /// Returns a free buffer. If there is none, we make one, unless there are too many.
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

    /// Takes a buffer back. If we never lent it, it belongs to another tool, which had its callbacks there before us or put them
    /// there after us.
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

/// Gives CUPTI a buffer for as many records as fit into it (`CUpti_BuffersCallbackRequestFunc`).
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
/// CUPTI does not touch the buffer from now on. We make a reference from the pointer only if it is a buffer that we lent.
pub(crate) unsafe extern "C" fn completed(_: CUcontext, _: u32, memory: *mut u8, _size: usize, valid: usize) {
    lock(&BUFFERS).take_back(memory, valid);
}

/// Whether CUPTI holds buffers.
pub(crate) fn any_lent() -> bool {
    lock(&BUFFERS).all.iter().any(|buffer| buffer.state == BufferOwner::Lent)
}

/// Frees the memory that is not in use.
pub(crate) fn trim() {
    lock(&BUFFERS).all.retain(|buffer| {
        let is_free = buffer.state == BufferOwner::Free;
        if is_free {
            // SAFETY: we allocated it with this layout, and a free buffer has no user.
            unsafe { dealloc(buffer.memory.as_ptr(), LAYOUT) };
        }
        !is_free
    });
}

/// A returned buffer, for reading. When you drop this value, we may lend the buffer again.
pub(crate) struct Full {
    memory: NonNull<u8>,
    bytes: usize,
}

impl Full {
    /// Takes the buffer that came back first.
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

    /// Returns a pointer to the records, and how many bytes they take.
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
        // SAFETY: only this value has the buffer.
        unsafe { completed(std::ptr::null_mut(), 0, memory, SIZE, bytes) };
    }

    /// This is all one test, because the process has one set of buffers.
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
