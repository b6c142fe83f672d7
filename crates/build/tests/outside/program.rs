//! A program that runs its kernels on the CPU, through the generated launchers.
#![deny(warnings, missing_docs)]

use gpustream::{Device, ErrorKind, Launch, half::f16};

/// The launchers.
pub mod kernels {
    gpustream::include_kernels!("kernels");
}

fn main() -> Result<(), gpustream::Error> {
    let device = Device::open("cpu")?;
    let stream = device.stream()?;
    let k = kernels::Kernels::load(&device)?;

    // A struct by value, a bool, and a launch with several elements for each thread.
    let x = stream.upload(&[1.0_f32, 2.0, 3.0])?;
    let mut y = stream.zeros::<f32>(3)?;
    let line = kernels::Line { slope: 2.0, offset: 0.5, tag: [0, 0, 0, 100] };
    k.affine(&stream, line, &x, &mut y, true, 3)?;
    assert_eq!(stream.download(&y)?, [-102.5, -104.5, -106.5]);
    k.affine(&stream, line, &x, &mut y, false, 0)?;
    let error = k.affine(&stream, line, &x, &mut y, false, 4).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ContractViolated);
    let message = error.to_string();
    for part in ["`affine`", "n <= len(x)", "n = 4", "len(x) = 3", "main.rs:"] {
        assert!(message.contains(part), "no {part} in {message}");
    }
    k.affine_with(&stream, &Launch::new([2, 1, 1], [3, 1, 1]), line, &x, &mut y, false, 3)?;
    assert_eq!(stream.download(&y)?, [102.5, 104.5, 106.5]);

    // Two dimensions with signed extents.
    let mut image = stream.zeros::<u32>(37 * 19)?;
    k.paint(&stream, &mut image, 37, 19)?;
    assert!(stream.download(&image)?.iter().copied().eq(0..37 * 19));
    for (width, height) in [(-1, 19), (-37, -19), (38, 19), (i32::MAX, i32::MAX)] {
        let error = k.paint(&stream, &mut image, width, height).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ContractViolated, "{width} {height}: {error}");
    }

    // Half precision, and an extent that is a length.
    let mut h = stream.upload(&[f16::from_f32(3.0); 300])?;
    k.shrink(&stream, f16::from_f32(0.5), &mut h, 300)?;
    assert!(stream.download(&h)?.iter().all(|v| v.to_f32() == 1.5));
    assert_eq!(k.shrink(&stream, f16::ONE, &mut h, 299).unwrap_err().kind(), ErrorKind::ContractViolated);

    // Conditions on the launch, and dynamic shared memory.
    let mut x = stream.upload(&[0.0_f32, 1.0, 2.0, 3.0, 4.0, 5.0])?;
    k.reverse(&stream, &Launch::new([2, 1, 1], [3, 1, 1]).shared(12), &mut x)?;
    assert_eq!(stream.download(&x)?, [2.0, 1.0, 0.0, 5.0, 4.0, 3.0]);
    for (launch, clause) in [
        (Launch::new([2, 1, 1], [3, 1, 1]).shared(11), "shared >= 4 * block.x"),
        (Launch::new([1, 1, 1], [65, 1, 1]).shared(4096), "block.x <= 64"),
        (Launch::new([3, 1, 1], [3, 1, 1]).shared(12), "grid.x * block.x <= len(x)"),
    ] {
        let error = k.reverse(&stream, &launch, &mut x).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ContractViolated);
        assert!(error.to_string().contains(clause), "no {clause} in {error}");
    }

    // Names that mean something in Rust, a vector by value, and a flag.
    let flag = device.flag()?;
    flag.set(7);
    let mut sum = stream.zeros::<f32>(1)?;
    k.r#match(&stream, &Launch::new([1, 1, 1], [1, 1, 1]), [1.0, 2.0, 3.0, 4.0], &flag, &mut sum)?;
    assert_eq!(stream.download(&sum)?, [17.0]);

    // Without a contract we cannot check anything, so you must promise it.
    let mut ints = stream.zeros::<i32>(4)?;
    // SAFETY: four threads write an element each.
    unsafe { k.unchecked(&stream, &Launch::new([1, 1, 1], [4, 1, 1]), &mut ints) }?;
    assert_eq!(stream.download(&ints)?, [0, 1, 2, 3]);
    println!("all launchers work");
    Ok(())
}
