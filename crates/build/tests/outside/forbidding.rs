//! A crate that forbids `unsafe`, and contracts whose arithmetic has no result.
#![forbid(unsafe_code)]
#![deny(warnings, missing_docs)]

use gpustream::{Device, ErrorKind, Launch};

/// The launchers.
pub mod kernels {
    gpustream::include_kernels!("kernels");
}

fn main() -> Result<(), gpustream::Error> {
    let device = Device::open("cpu")?;
    let stream = device.stream()?;
    let k = kernels::Kernels::load(&device)?;
    let mut y = stream.zeros::<u32>(100)?;

    k.ints(&stream, &mut y, 10, 5)?;
    let one = Launch::new([1, 1, 1], [1, 1, 1]);
    for (a, b) in
        [(10, 0), (0, 0), (i32::MIN, -1), (-10, -5), (46_341, 46_341), (i32::MAX, i32::MAX), (3, 7), (10, 3)]
    {
        let error = k.ints_with(&stream, &one, &mut y, a, b).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ContractViolated, "{a} {b}: {error}");
    }
    k.mixed(&stream, &mut y, 101, -1)?;
    for (u, s) in [(101, 0), (0, -1), (u64::MAX, 0), (u64::MAX, 1), (u64::MAX, -128), (127, -128)] {
        let error = k.mixed(&stream, &mut y, u, s).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ContractViolated, "{u} {s}: {error}");
    }
    k.cubes(&stream, &mut y, 4, 0)?;
    for (u, w) in [(5, 0), (u64::MAX, 0), (1 << 43, 0), (1, i64::MIN), (1, -101)] {
        let error = k.cubes(&stream, &mut y, u, w).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ContractViolated, "{u} {w}: {error}");
    }
    let sums = stream.download(&y)?;
    assert_eq!((sums[0], sums[49], sums[50], sums[99]), (2, 2, 1, 1));

    // The kernel's parameter says that this word can change at any time. An ordinary buffer works for it too.
    let flag = device.flag()?;
    flag.set(7);
    let x = stream.full(1, 9u32)?;
    k.look(&stream, &one, &flag, &mut y, kernels::Step { by: 1 })?;
    assert_eq!(stream.download(&y)?[0], 8);
    k.look(&stream, &one, &x, &mut y, kernels::Step { by: 2 })?;
    assert_eq!(stream.download(&y)?[0], 11);

    // The launch is cooperative, so a grid is refused if its blocks cannot all run at once.
    let mut arrivals = stream.zeros::<u32>(1000)?;
    k.meet(&stream, &mut arrivals)?;
    let many = Launch::new([1 << 20, 1, 1], [1, 1, 1]);
    let refusal = k.meet_with(&stream, &many, &mut arrivals);
    assert_eq!(refusal.unwrap_err().kind(), ErrorKind::InvalidLaunch);
    stream.synchronize()?;
    println!("no unsafe here");
    Ok(())
}
