//! Generic launchers, called by generic code, in a crate that only allows `unsafe` outside its kernels.
#![deny(warnings, missing_docs)]

use gpustream::{Buffer, Device, Launch, Pod, Result, Stream};
use kernels::{HasAdd, HasAxpy, HasScale, HasWiden, Kernels};

/// The launchers.
pub mod kernels {
    #![forbid(unsafe_code)]
    gpustream::include_kernels!("kernels");
}

/// The types of both kernels.
trait Element: HasAxpy + HasWiden<<Self as Element>::Wide> {
    type Wide: Pod;
}
impl Element for f32 {
    type Wide = f64;
}
impl Element for i32 {
    type Wide = i64;
}

/// Returns `2 * a * x`, in the wider type.
fn compute<T: Element>(k: &Kernels, s: &Stream, a: T, x: &[T]) -> Result<Vec<T::Wide>> {
    let (x, mut y) = (s.upload(x)?, s.zeros(x.len())?);
    k.axpy(s, a, &x, &mut y, x.len())?;
    k.axpy_with(s, &Launch::covering(x.len()), a, &x, &mut y, x.len())?;
    let mut wide = s.alloc(x.len())?;
    k.widen(s, &y, &mut wide, x.len())?;
    s.download(&wide)
}

fn scale<T: HasScale<N> + Pod, const N: i32>(k: &Kernels, s: &Stream, x: &mut Buffer<T>) -> Result<()> {
    let launch = Launch::new([x.len() as u32, 1, 1], [1, 1, 1]);
    // SAFETY: the kernel has a block for each element.
    unsafe { k.scale::<T, N>(s, &launch, x) }
}

fn main() -> Result<()> {
    let device = Device::open("cpu")?;
    let (s, k) = (device.stream()?, Kernels::load(&device)?);
    assert_eq!(compute(&k, &s, 3.0, &[1.0_f32, 2.0])?, [6.0_f64, 12.0]);
    assert_eq!(compute(&k, &s, 3, &[1, 2])?, [6_i64, 12]);

    let mut x = s.upload(&[1, 2])?;
    k.add::<2>(&s, &mut x, 2)?;
    fn add<const N: i32>(k: &Kernels, s: &Stream, x: &mut Buffer<i32>) -> Result<()>
    where
        Kernels: HasAdd<N>,
    {
        k.add::<N>(s, x, 1)
    }
    add::<-3>(&k, &s, &mut x)?;
    scale::<_, 3>(&k, &s, &mut x)?;
    assert_eq!(s.download(&x)?, [0, 12]);
    // Here.
    println!("all instances work");
    Ok(())
}
