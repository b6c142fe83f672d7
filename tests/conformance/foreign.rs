//! Kernels as existing programs have them, found by the names that C++ gives them.

use conformance::foreign;
use gpustream::{Arg, Device, ErrorKind, Launch, Result};

conformance::tests! {
    Plain: kernels_are_found_by_their_names_in_cpp, a_kernel_is_found_by_the_name_of_its_function;
}

fn kernels_are_found_by_their_names_in_cpp(device: &Device) -> Result<()> {
    let kernels = foreign::Kernels::load(device)?;
    let s = device.stream()?;
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
    let mut z = s.zeros::<i64>(2)?;
    kernels.twice_3(&s, &y, &mut z, 2)?;
    assert_eq!(s.download(&z)?, [24, 36]);
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
