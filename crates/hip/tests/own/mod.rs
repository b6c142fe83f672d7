//! The calls that HIP alone has, and what the backend makes of HIP's own answers. Run once under each version.

mod batch;
mod hiprtc;
mod layout;
mod memset;
mod part;
mod safe;

use crate::backends::start;

#[test]
fn features_choose_between_images() {
    let (_recorder, device) = start();
    assert!(device.target_rank("gfx90a:xnack-") > device.target_rank("gfx90a"));
    assert!(device.target_rank("gfx90a").is_some());
    for other in ["gfx90a:xnack+", "gfx942", "gfx9-generic", "sm_90", "x86-64-v3"] {
        assert_eq!(device.target_rank(other), None, "{other}");
    }
}
