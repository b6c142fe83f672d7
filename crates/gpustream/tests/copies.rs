//! Compares copies of boxes out of larger arrays with a plain loop, on the CPU backend.
#![allow(clippy::unwrap_used, reason = "tests")]

use gpustream::{Device, ErrorKind, Pitched};
use proptest::prelude::*;

fn expected(
    src: &[u16],
    from: Pitched,
    dst: &mut [u16],
    to: Pitched,
    [width, height, depth]: [usize; 3],
) -> Option<()> {
    for z in 0..depth {
        for y in 0..height {
            for x in 0..width {
                let at = |it: Pitched| it.offset + x + it.pitch * (y + if z == 0 { 0 } else { it.rows * z });
                *dst.get_mut(at(to))? = *src.get(at(from))?;
            }
        }
    }
    Some(())
}

fn pitched() -> impl Strategy<Value = Pitched> {
    (0usize..10, 1usize..8, 1usize..5).prop_map(|(offset, pitch, rows)| Pitched { offset, pitch, rows })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]
    #[test]
    fn boxes_arrive_or_are_refused(
        from in pitched(),
        to in pitched(),
        extent in [0usize..6, 0usize..5, 0usize..4],
        host in any::<bool>(),
    ) {
        thread_local! {
            static DEVICE: Device = Device::open("cpu").unwrap();
        }
        let device = DEVICE.with(Clone::clone);
        let stream = device.stream().unwrap();
        let values: Vec<u16> = (1..=80).collect();
        let src = stream.upload(&values).unwrap();
        let mut model = vec![0; 80];
        let fits = expected(&values, from, &mut model, to, extent).is_some();
        let several = extent[1] > 1 || extent[2] > 1;
        let apart = |it: Pitched| (!several || extent[0] <= it.pitch) && (extent[2] <= 1 || extent[1] <= it.rows);
        let possible = extent.contains(&0) || (fits && apart(from) && apart(to));
        let (result, got) = if host {
            let mut dst = device.pinned::<u16>(80).unwrap();
            let result = stream.copy_box(&src, from, &mut dst, to, extent);
            (result, dst.read().unwrap().to_vec())
        } else {
            let mut dst = stream.zeros::<u16>(80).unwrap();
            let result = stream.copy_box(&src, from, &mut dst, to, extent);
            (result, stream.download(&dst).unwrap())
        };
        match result {
            Ok(()) => {
                prop_assert!(possible);
                prop_assert_eq!(got, model);
            }
            Err(error) => {
                prop_assert!(!possible, "{}", error);
                prop_assert!(matches!(error.kind(), ErrorKind::OutOfBounds | ErrorKind::InvalidArgument));
                prop_assert_eq!(got, vec![0; 80]);
            }
        }
    }
}

#[test]
fn only_the_boxs_elements_must_be_written() {
    let device = Device::open("cpu").unwrap();
    let stream = device.stream().unwrap();
    let mut array = stream.alloc::<u32>(12).unwrap();
    let mut tile = stream.alloc::<u32>(4).unwrap();
    stream.fill(&mut array.slice_mut(0..2).unwrap(), 1).unwrap();
    stream.fill(&mut array.slice_mut(4..6).unwrap(), 2).unwrap();
    stream.copy_box(&array, Pitched::new_2d(4), &mut tile, Pitched::new_2d(2), [2, 2, 1]).unwrap();
    assert_eq!(stream.download(&tile).unwrap(), [1, 1, 2, 2]);
    let error = stream.copy_box(&array, Pitched::new_2d(4), &mut tile, Pitched::new_2d(2), [2, 3, 1]);
    assert_eq!(error.unwrap_err().kind(), ErrorKind::OutOfBounds);
    let error =
        stream.copy_box(&array, Pitched::new_2d(4).at(2, 0), &mut tile, Pitched::new_2d(2), [2, 2, 1]);
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Uninitialized);
}
