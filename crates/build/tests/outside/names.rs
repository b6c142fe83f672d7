//! C++ names that mean something in Rust, in a crate that renames its dependency.
#![deny(warnings, missing_docs)]

use gs::{Device, Launch};

/// The launchers.
pub mod kernels {
    gs::include_kernels!("kernels");
}

fn main() -> gs::Result<()> {
    let device = Device::open("cpu")?;
    let (s, k) = (device.stream()?, kernels::Kernels::load(&device)?);
    let one = Launch::new([1, 1, 1], [1, 1, 1]);
    k.set_offset(&s, &[0, 1000])?;

    let mut x = s.zeros::<i32>(1)?;
    let pair = kernels::Pair { first: 200, second: 0 };
    k.words(&s, &mut x, 1, 1, 2, 3, 4, 5, 6, 7, kernels::Mode::On, pair, 8, 9)?;
    assert_eq!(s.download(&x)?, [1246]);
    let error = k.words(&s, &mut x, 1, 101, 2, 3, 4, 5, 6, 7, kernels::Mode::On, pair, 8, 9).unwrap_err();
    assert!(error.to_string().contains("Some = 101"), "{error}");

    let mut y = s.zeros::<f32>(2)?;
    k.maybe(&s, None, &mut y, 2)?;
    assert_eq!(s.download(&y)?, [-1.0, -1.0]);
    // SAFETY: one thread writes the only element.
    unsafe { k.unchecked(&s, &one, &mut x, 7) }?;
    k.apply::<kernels::Plus, 3>(&s, &one, &mut x)?;
    assert_eq!(s.download(&x)?, [10]);
    println!("names are no matter");
    Ok(())
}
