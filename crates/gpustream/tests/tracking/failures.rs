//! If a driver call fails, the operations must still be in the right order.

use gpustream::{DeviceOptions, ErrorKind, Stream};

use crate::{Mem, paper, touch, write};

#[test]
fn a_failed_hand_over_can_be_tried_again_and_by_others() {
    // These fail in turn: making the event, recording it, waiting for it, launching.
    for n in 0..4 {
        let (paper, _, kernel, [a, b, c]) = paper::open(DeviceOptions::default());
        let (mut x, mut y) = (a.alloc::<u8>(100).unwrap(), b.alloc::<u8>(100).unwrap());
        write(&kernel, &a, &mut x);
        let mut write_both = |stream: &Stream| {
            let both = &mut [Mem::Write(y.slice_mut(..).unwrap()), Mem::Write(x.slice_mut(..).unwrap())];
            touch(&kernel, stream, both)
        };
        paper.fail_in(n, ErrorKind::Driver);
        write_both(&b).unwrap_err();
        assert!(paper.failed());
        // c uses the memory after the failed attempt. Then we let b try again.
        write_both(&c).unwrap();
        write_both(&b).unwrap();
        assert_eq!(paper.state().violations, Vec::<String>::new(), "call {n}");
    }
}
