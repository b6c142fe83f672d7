//! The calls that only HIP has, and what the backend makes of answers that only HIP gives. This must run once under
//! each version.

mod batch;
mod captures;
mod hiprtc;
mod layout;
mod memset;
mod part;
mod refused_traces;
mod safe;
mod traced_process;
pub(crate) mod traces;

use gpustream_hal::{ErrorKind, RawBuffer, WaitValue};

use crate::backends::{start, startup::in_own_process, stream};
use crate::{backend, load_with, options};

#[test]
fn features_choose_between_images() {
    let (_recorder, device) = start();
    assert!(device.target_rank("gfx90a:xnack-") > device.target_rank("gfx90a"));
    assert!(device.target_rank("gfx90a").is_some());
    for other in ["gfx90a:xnack+", "gfx942", "gfx9-generic", "sm_90", "x86-64-v3"] {
        assert_eq!(device.target_rank(other), None, "{other}");
    }
}

#[test]
fn library_without_waits_for_words_says_so() {
    in_own_process(&[], || {
        let mut options = options();
        options.without.push("hipStreamWaitValue32");
        let _recorder = load_with(options);
        let device = backend().open(0).unwrap();
        assert!(!device.info().features.stream_wait_value);
        // SAFETY: the stream is alive; we make no call.
        let waited =
            unsafe { device.stream_wait_value32(stream(&*device), RawBuffer(64), WaitValue::Equal(1)) };
        let error = waited.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.message().contains("hipStreamWaitValue32"), "{error}");
    });
}
