//! If an object's device cannot be reached, every operation refuses it, and both devices stay usable.

use gpustream::{DeviceOptions, ErrorKind, Result};

use crate::paper::{self, Paper};
use crate::{Mem, touch, write};

#[track_caller]
fn refused<T>(result: Result<T>, what: &str) {
    refused_saying(result, &[what, "cannot reach", "through the host"]);
}

#[track_caller]
fn refused_saying<T>(result: Result<T>, texts: &[&str]) {
    let Err(error) = result else {
        panic!("an operation was accepted that should be refused with {texts:?}")
    };
    assert_eq!(error.kind(), ErrorKind::DeviceMismatch, "{error}");
    for text in texts {
        assert!(error.message().contains(text), "`{error}` does not say `{text}`");
    }
}

#[test]
fn everything_of_another_device_is_refused() {
    // The two devices get their own backend, because a device looks after all streams of its backend, and other tests count the
    // calls there.
    for (backend, ordinal) in [("paper", 0), ("cardboard", 1)] {
        let (paper, other) = (Paper::of(backend, 0), Paper::of("cardboard", ordinal));
        let (mine, theirs) = (paper.open(DeviceOptions::default()), other.open(DeviceOptions::default()));
        let (s, t) = (mine.stream().unwrap(), theirs.stream().unwrap());
        let (mut x, mut y) = (s.zeros::<u8>(100).unwrap(), t.zeros::<u8>(100).unwrap());
        let kernel = paper::kernel(&mine);
        let (before, before_other) = (paper.state().order.ops(), other.state().order.ops());

        refused(s.copy(&y, &mut x), "the memory");
        refused(s.copy(&x, &mut y), "the memory");
        refused(s.fill(&mut y, 1), "the memory");
        refused(s.download(&y), "the memory");
        refused(s.upload_into(&[1; 100], &mut y), "the memory");
        let pinned = theirs.pinned::<u8>(100).unwrap();
        // A driver can order its own devices by events, and page-locked memory belongs to none of them, even if neither can access
        // the other one's memory.
        if theirs.info().backend != mine.info().backend {
            refused(s.copy(&pinned, &mut x), "the memory");
            refused_saying(
                s.wait(&t.record().unwrap()),
                &["the event", "cardboard", "`event.synchronize()`"],
            );
        }
        let say =
            &["the kernel `touch`", "a device that is not the stream's", "load its module with the stream's"];
        refused_saying(touch(&kernel, &t, &mut [Mem::Read(y.slice(..).unwrap())]), say);
        let both = &mut [Mem::Write(x.slice_mut(..).unwrap()), Mem::Read(y.slice(..).unwrap())];
        refused(touch(&kernel, &s, both), "of `touch` belongs to cardboard:");

        assert_eq!(paper.state().order.ops(), before, "a refused operation was submitted");
        assert_eq!(other.state().order.ops(), before_other, "a refused operation was submitted");
        write(&kernel, &s, &mut x);
        t.fill(&mut y, 1).unwrap();
        s.synchronize().unwrap();
        t.synchronize().unwrap();
        assert_eq!(paper.state().violations, Vec::<String>::new());
        assert_eq!(other.state().violations, Vec::<String>::new());
    }
}
