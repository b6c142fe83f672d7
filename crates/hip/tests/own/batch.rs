//! Batches of copies, in the versions that have a function for them.

use gpustream_hal::{Copy1d, CopyEnd};

use crate::backends::{Vendor, memory::copy_batch, names, start, startup::in_own_process, stream};
use crate::{VENDOR, backend, load_with, options};

/// Up to 7.2 we cannot use the function, because it refuses attributes, and it is only a loop anyway.
#[test]
fn versions_before_7_14_get_single_copies() {
    in_own_process(&[], || {
        let mut options = options();
        options.version = 70_253_211;
        let recorder = load_with(options);
        let device = backend().open(0).unwrap();
        let stream = stream(&*device);
        let calls = copy_batch(&recorder, &*device, stream);
        assert_eq!(names(&calls), ["hipMemcpyHtoDAsync", "hipMemcpyDtoDAsync", "hipMemcpyDtoHAsync"]);
    });
}

#[test]
fn long_batches_are_cut() {
    const COPIES: usize = 20_000;
    if VENDOR != Vendor::Rocm(7) {
        return;
    }
    let (recorder, device) = start();
    let stream = stream(&*device);
    let memory = device.alloc(2 * COPIES).unwrap();
    let copies: Vec<_> = (0..COPIES)
        .map(|i| Copy1d {
            dst: CopyEnd::Device(memory.offset(i)),
            src: CopyEnd::Device(memory.offset(COPIES + i)),
            bytes: 1,
        })
        .collect();
    // SAFETY: the memory has room for all copies, which do not overlap, and we free it after they are done.
    unsafe {
        let ((), calls) = recorder.record(|| device.copy_batch(&copies, stream).unwrap());
        let counts: Vec<_> = calls.iter().map(|call| (call.name, call.arg("count"))).collect();
        assert_eq!(counts, [8192, 8192, 3616].map(|count| ("hipMemcpyBatchAsync", count)));
        device.stream_synchronize(stream).unwrap();
        device.free(memory).unwrap();
        device.stream_destroy(stream).unwrap();
    }
}
