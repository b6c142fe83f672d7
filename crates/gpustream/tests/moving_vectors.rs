//! If a vector gives up its spare capacity it may move, perhaps to a place that kernels cannot read its elements from as
//! vectors.

#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::alloc::{GlobalAlloc, Layout, System};

use gpustream::{Device, ErrorKind};

/// Puts memory of ten elements, and nothing else, at a place that is not a multiple of 16 bytes.
struct Moving;

const FEW: Layout = Layout::new::<[[f32; 4]; 10]>();
const SHIFT: usize = 8;

fn shifted() -> Layout {
    Layout::from_size_align(FEW.size() + SHIFT, 16).unwrap()
}

// SAFETY: this is the system's memory, from its start or shifted by a few bytes.
unsafe impl GlobalAlloc for Moving {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: this function's contract, and there is room for the shift.
        unsafe { if layout == FEW { System.alloc(shifted()).add(SHIFT) } else { System.alloc(layout) } }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as `alloc` made it.
        unsafe {
            if layout == FEW {
                System.dealloc(memory.sub(SHIFT), shifted());
            } else {
                System.dealloc(memory, layout);
            }
        }
    }
}

#[global_allocator]
static MOVING: Moving = Moving;

#[test]
fn registered_vectors_are_checked_where_they_end_up() {
    let device = Device::open("cpu").unwrap();
    let mut values: Vec<[f32; 4]> = Vec::with_capacity(100);
    values.resize(10, [1.0; 4]);
    assert!(values.as_ptr().addr().is_multiple_of(16));
    let error = device.register(values).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("a multiple of 16 bytes"), "{error}");
}
