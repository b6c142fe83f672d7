//! Kernels as existing programs have them. You find them by their C++ names.

use conformance::{foreign, with_stream};
use gpustream::half::{bf16, f16};
use gpustream::{Arg, Device, ErrorKind, Launch, Result};

conformance::tests! {
    Plain: kernels_are_found_by_their_names_in_cpp, a_kernel_is_found_by_the_name_of_its_function,
        a_template_over_types_is_one_generic_launcher, templates_take_numbers_and_types_that_only_cpp_has,
        templates_are_instantiated_in_the_file_and_by_the_build_script;
}

fn kernels_are_found_by_their_names_in_cpp(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, foreign::Kernels::load)?;
    let mut x = s.upload(&[1.0_f32, 2.0])?;
    kernels.add_one(&s, &mut x, 2)?;
    kernels.twice(&s, &mut x, 2)?;
    kernels.solver_add_one(&s, &mut x, 2)?;
    assert_eq!(s.download(&x)?, [3.0, 5.0]);
    let mut y = s.upload(&[1, 2])?;
    kernels.hidden(&s, &mut y, 2)?;
    kernels.deep(&s, &mut y, 2)?;
    kernels.twice_2(&s, &mut y, 2)?;
    assert_eq!(s.download(&y)?, [12, 18]);
    kernels.reverse(&s, &Launch::exact([1, 1, 1], [2, 1, 1]).shared(8), &mut y)?;
    assert_eq!(s.download(&y)?, [18, 12]);
    let mut z = s.zeros::<i64>(2)?;
    kernels.twice_3(&s, &y, &mut z, 2)?;
    assert_eq!(s.download(&z)?, [36, 24]);
    Ok(())
}

fn a_kernel_is_found_by_the_name_of_its_function(device: &Device) -> Result<()> {
    let kernels = foreign::Kernels::load(device)?;
    let module = kernels.module();
    let s = device.stream()?;
    let mut x = s.upload(&[1, 2])?;
    for name in ["solver::hidden", "solver::detail::deep"] {
        let kernel = module.kernel(name)?;
        assert_eq!(kernel.name(), name);
        let mut view = x.slice_mut(..)?;
        // SAFETY: the kernels take an array and its length.
        unsafe { kernel.launch(&s, &Launch::covering(2), &[Arg::write(&mut view), Arg::value(&2_usize)]) }?;
    }
    assert_eq!(s.download(&x)?, [6, 9]);
    for name in ["hidden", "deep", "solver::deep", "twice"] {
        assert_eq!(module.kernel(name).unwrap_err().kind(), ErrorKind::KernelNotFound, "{name}");
    }
    Ok(())
}

fn a_template_over_types_is_one_generic_launcher(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, foreign::Kernels::load)?;
    macro_rules! check {
        ($($number:expr),*) => {$({
            let number = $number;
            let x = s.upload(&[number(1), number(2), number(3)])?;
            let mut y = s.upload(&[number(4), number(5), number(6)])?;
            kernels.axpy(&s, number(2), &x, &mut y, 3)?;
            assert_eq!(s.download(&y)?, [number(6), number(9), number(12)]);
            kernels.axpy_with(&s, &Launch::covering(2), number(3), &x, &mut y, 2)?;
            assert_eq!(s.download(&y)?, [number(9), number(15), number(12)]);
            assert_eq!(kernels.axpy(&s, number(2), &x, &mut y, 4).unwrap_err().kind(), ErrorKind::ContractViolated);
        })*};
    }
    check!(|n| n, |n| n as f32, f64::from, |n| f16::from_f32(n as f32), |n| bf16::from_f32(n as f32));
    assert_eq!(kernels.module().kernel("axpy<float>")?.name(), "axpy<float>");
    Ok(())
}

fn templates_take_numbers_and_types_that_only_cpp_has(device: &Device) -> Result<()> {
    use foreign::{solver_Product as Product, solver_Sum as Sum};
    let (kernels, s) = with_stream(device, foreign::Kernels::load)?;
    let launch = Launch::new([1; 3], [2, 1, 1]);
    let x: Vec<i64> = (1..=8).collect();
    let x = s.upload(&x)?;
    let mut y = s.zeros::<i64>(2)?;
    // SAFETY: two threads read N values each, and write one.
    unsafe { kernels.fold::<i64, Sum, 4, true>(&s, &launch, &x, &mut y) }?;
    assert_eq!(s.download(&y)?, [10, 26]);
    // SAFETY: two threads read four values each, and write one.
    unsafe { kernels.fold::<_, Product, 4, false>(&s, &launch, &x, &mut y) }?;
    assert_eq!(s.download(&y)?, [2, 30]);
    // SAFETY: two threads read two values each, and write one.
    unsafe { kernels.fold::<_, Product, 2, true>(&s, &launch, &x, &mut y) }?;
    assert_eq!(s.download(&y)?, [2, 12]);
    Ok(())
}

fn templates_are_instantiated_in_the_file_and_by_the_build_script(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, foreign::Kernels::load)?;
    let launch = Launch::new([1; 3], [2, 1, 1]);
    let (mut x, mut y) = (s.upload(&[1.0_f32, 2.0])?, s.upload(&[1_u32, 2])?);
    // SAFETY: two threads change one value each.
    unsafe {
        kernels.shifted::<_, 3>(&s, &launch, &mut x)?;
        kernels.shifted::<_, 7>(&s, &launch, &mut y)?;
    }
    assert_eq!((s.download(&x)?, s.download(&y)?), (vec![4.0, 5.0], vec![8, 9]));
    let mut z = s.upload(&[10, 20])?;
    // SAFETY: two threads change one value each.
    unsafe {
        kernels.less::<3>(&s, &launch, &mut z)?;
        kernels.less::<-4>(&s, &launch, &mut z)?;
    }
    assert_eq!(s.download(&z)?, [11, 21]);
    // SAFETY: nothing is launched.
    let error = unsafe { kernels.less::<3>(&s, &Launch::new([1; 3], [2000, 1, 1]), &mut z) }.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidLaunch);
    Ok(())
}
