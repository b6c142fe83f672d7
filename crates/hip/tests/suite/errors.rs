//! The state behind `hipGetLastError`.

use super::start;

/// The state behind `hipGetLastError` differs between versions; nothing may depend on it.
#[test]
fn the_last_error_is_never_asked_for() {
    let (recorder, device) = start();
    recorder.fail_next("hipMalloc", 2);
    device.alloc(16).unwrap_err();
    let buffer = device.alloc(16).unwrap();
    // SAFETY: allocated, and not used again.
    unsafe { device.free(buffer) }.unwrap();
    let asked = recorder.calls().iter().filter(|call| call.name.contains("LastError")).count();
    assert_eq!(asked, 0);
}
