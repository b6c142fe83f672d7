//! Copies that change the element type give the same results as the crate `half`.

use bytemuck::Pod;
use gpustream::half::{bf16, f16};
use gpustream::{Device, ErrorKind, Result};
use gpustream_kernels::convert::{Convert, HasConvert};

use conformance::{refused, tests};

tests! {
    Plain: every_16_bit_value_widens_and_comes_back, conversions_round_to_nearest,
        all_types_convert_at_all_offsets, pinned_memory_converts_on_either_side,
        slices_are_converted_on_their_way, different_lengths_are_refused;
}

/// Compares bit by bit, except that any NaN equals any other NaN.
trait Same: Pod + std::fmt::Debug {
    fn same(self, other: Self) -> bool;
}

macro_rules! same {
    ($($type:ty)*) => {$(
        impl Same for $type {
            fn same(self, other: Self) -> bool {
                self.to_bits() == other.to_bits() || self.is_nan() && other.is_nan()
            }
        }
    )*};
}
same!(f16 bf16 f32 f64);

#[track_caller]
fn assert_same<T: Same>(got: &[T], want: &[T], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (index, (got, want)) in got.iter().zip(want).enumerate() {
        assert!(got.same(*want), "{what}: element {index} is {got:?}, not {want:?}");
    }
}

fn every_16_bit_value_widens_and_comes_back(device: &Device) -> Result<()> {
    let (s, convert) = (device.stream()?, Convert::load(device)?);
    let halves: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
    let brains: Vec<bf16> = (0..=u16::MAX).map(bf16::from_bits).collect();
    let wide = convert.upload::<f16, f32>(&s, &halves)?;
    assert_same(&s.download(&wide)?, &halves.iter().map(|x| x.to_f32()).collect::<Vec<_>>(), "f16 to f32");
    assert_same(&convert.download::<f32, f16>(&s, &wide)?, &halves, "and back");
    let wide = convert.upload::<bf16, f32>(&s, &brains)?;
    assert_same(&s.download(&wide)?, &brains.iter().map(|x| x.to_f32()).collect::<Vec<_>>(), "bf16 to f32");
    assert_same(&convert.download::<f32, bf16>(&s, &wide)?, &brains, "and back");
    Ok(())
}

/// The values lie at every tie, just below it and just above it. Some are denormal, and some overflow.
fn conversions_round_to_nearest(device: &Device) -> Result<()> {
    let (s, convert) = (device.stream()?, Convert::load(device)?);
    let ties = (0..=u16::MAX).flat_map(|bits| {
        let half = f16::from_bits(bits).to_f32();
        let next = f16::from_bits(bits.wrapping_add(1)).to_f32();
        let brain = f32::from_bits(u32::from(bits) << 16 | 0x8000);
        [half.midpoint(next), brain]
    });
    let near =
        ties.flat_map(|tie| [-1i32, 0, 1].map(|by| f32::from_bits(tie.to_bits().wrapping_add_signed(by))));
    let edges =
        [0.0, -0.0, 65_504.0, 65_519.996, 65_520.0, 1e-8, 5.960_464e-8, f32::MAX, f32::MIN_POSITIVE, 1e-45];
    let all: Vec<f32> =
        near.chain(edges).chain([f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -f32::NAN]).collect();
    let x = s.upload(&all)?;
    let halves: Vec<f16> = all.iter().map(|&x| f16::from_f32(x)).collect();
    let brains: Vec<bf16> = all.iter().map(|&x| bf16::from_f32(x)).collect();
    assert_same(&convert.download::<f32, f16>(&s, &x)?, &halves, "f32 to f16");
    assert_same(&convert.download::<f32, bf16>(&s, &x)?, &brains, "f32 to bf16");

    let doubles: Vec<f64> = all
        .iter()
        .flat_map(|&x| [f64::from(x), f64::from(x) * (1.0 + 1e-9), f64::from(x) * 1e300, f64::from(x) / 3.0])
        .collect();
    #[allow(clippy::cast_possible_truncation, reason = "that is what is tested")]
    let singles: Vec<f32> = doubles.iter().map(|&x| x as f32).collect();
    assert_same(&convert.download::<f64, f32>(&s, &s.upload(&doubles)?)?, &singles, "f64 to f32");
    let wide: Vec<f64> = singles.iter().map(|&x| f64::from(x)).collect();
    assert_same(&convert.upload::<f32, f64>(&s, &singles).and_then(|x| s.download(&x))?, &wide, "f32 to f64");
    Ok(())
}

/// Converts values that all types can hold. The elements before and after them must not change.
fn at_offsets<T: HasConvert<U> + Same, U: Same>(
    device: &Device,
    from: impl Fn(u8) -> T,
    to: impl Fn(u8) -> U,
) -> Result<()> {
    let (s, convert) = (device.stream()?, Convert::load(device)?);
    for n in [0, 1, 2, 7, 8, 9, 31, 64, 255, 1025, 65_537, 300_007] {
        for [at_x, at_y] in [[0, 0], [1, 1], [8, 4], [3, 0], [0, 5]] {
            let what = format!("{n} elements at {at_x} and {at_y}");
            let number = |index: usize| (index % 251) as u8;
            let x: Vec<T> = (0..at_x + n).map(|index| from(number(index))).collect();
            let want: Vec<U> = (0..n).map(|index| to(number(at_x + index))).collect();
            let x = s.upload(&x)?;
            let mut y = s.full(at_y + n + 1, to(255))?;
            convert.copy(&s, &x.slice(at_x..)?, &mut y.slice_mut(at_y..at_y + n)?)?;
            let got = s.download(&y)?;
            assert_same(&got[at_y..at_y + n], &want, &what);
            assert!(got[..at_y].iter().chain(&got[at_y + n..]).all(|guard| guard.same(to(255))), "{what}");
        }
    }
    Ok(())
}

fn all_types_convert_at_all_offsets(device: &Device) -> Result<()> {
    let (half, brain) = (|x: u8| f16::from_f32(x.into()), |x: u8| bf16::from_f32(x.into()));
    at_offsets::<f32, f16>(device, f32::from, half)?;
    at_offsets::<f32, bf16>(device, f32::from, brain)?;
    at_offsets::<f16, f32>(device, half, f32::from)?;
    at_offsets::<bf16, f32>(device, brain, f32::from)?;
    at_offsets::<f64, f32>(device, f64::from, f32::from)?;
    at_offsets::<f32, f64>(device, f32::from, f64::from)
}

fn pinned_memory_converts_on_either_side(device: &Device) -> Result<()> {
    let (s, convert) = (device.stream()?, Convert::load(device)?);
    let values: Vec<f32> = (0..10_001u16).map(f32::from).collect();
    let halves: Vec<f16> = values.iter().map(|&x| f16::from_f32(x)).collect();
    let host = device.pinned_from(&values)?;
    let mut on_device = s.alloc::<f16>(values.len())?;
    convert.copy(&s, &host, &mut on_device)?;
    let mut back = device.pinned::<f32>(values.len())?;
    convert.copy(&s, &on_device, &mut back)?;
    assert_eq!(s.download(&on_device)?, halves);
    let want: Vec<f32> = halves.iter().map(|x| x.to_f32()).collect();
    assert_eq!(*back.read()?, want);
    Ok(())
}

fn slices_are_converted_on_their_way(device: &Device) -> Result<()> {
    let (s, convert) = (device.stream()?, Convert::load(device)?);
    for n in [0, 1, 1000, 3_000_001] {
        let values: Vec<f32> = (0..n).map(|index| (index % 256) as f32).collect();
        let brains = convert.upload::<f32, bf16>(&s, &values)?;
        assert_eq!(convert.download::<bf16, f32>(&s, &brains)?, values);
    }
    Ok(())
}

fn different_lengths_are_refused(device: &Device) -> Result<()> {
    let (s, convert) = (device.stream()?, Convert::load(device)?);
    let x = s.zeros::<f32>(10)?;
    let mut y = s.zeros::<f16>(9)?;
    refused(convert.copy(&s, &x, &mut y), ErrorKind::ArgumentMismatch, &["10 elements into 9"]);
    s.synchronize()
}
