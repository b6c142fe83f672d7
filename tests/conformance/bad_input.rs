//! If you make a mistake, you get an error of the right kind that says what to do, and nothing changes.
//!
//! `launch` tests mistakes in shapes, contracts and arguments, `copies` lengths and slices, and `modules` images. All
//! other mistakes are tested here.

use conformance::{Child, assert_all, open_again, refused, sync, tests};
use gpustream::{AsView, AsViewMut, Device, DeviceOptions, ErrorKind, Launch, Result};

tests! {
    Plain: names_of_no_device_are_refused, missing_devices_are_refused, reading_unwritten_memory_is_refused,
        only_written_elements_can_be_read, recycled_memory_is_unwritten,
        host_access_to_device_memory_is_refused, kernels_of_another_device_are_refused,
        everything_of_another_backend_is_refused, a_device_describes_itself,
        settings_that_are_not_allowed_are_refused_by_name;
    Part: opening_again;
}

fn names_of_no_device_are_refused(_: &Device) -> Result<()> {
    for name in ["", ":", "cpu:", "cpu:x", "cpu:-1", "cpu:0:0", "cuda:99999999999999999999"] {
        let Err(error) = Device::open(name) else { panic!("`{name}` was opened") };
        let kinds = [ErrorKind::InvalidArgument, ErrorKind::Unsupported];
        assert!(kinds.contains(&error.kind()), "{name}: {error:?}");
    }
    refused(Device::open("cpu:x"), ErrorKind::InvalidArgument, &["`cpu:x`", "cuda:0"]);
    refused(Device::open("vulkan"), ErrorKind::Unsupported, &["no backend", "`vulkan`", "cpu"]);
    Ok(())
}

/// If the library cannot obey an environment variable, it must name the variable instead of ignoring it.
fn settings_that_are_not_allowed_are_refused_by_name(device: &Device) -> Result<()> {
    for (variable, value, allowed) in [
        ("GPUSTREAM_POOL", "foo", "`driver` or `none`"),
        ("GPUSTREAM_STAGING_MIB", "x", "a number"),
        ("GPUSTREAM_STAGING_THREADS", "-1", "a number"),
        ("GPUSTREAM_BLOCKING", "yes", "0 or 1"),
        ("GPUSTREAM_LINT", "2", "0 or 1"),
    ] {
        let ended = Child::of(device, "bad_input::opening_again").env(variable, value).run()?;
        for part in ["InvalidArgument", variable, value, allowed] {
            assert!(ended.output.contains(part), "no `{part}` for {variable}={value}: {}", ended.output);
        }
        assert_ne!(ended.code, Some(0), "{variable}={value}: {}", ended.output);
    }
    Ok(())
}

fn opening_again(_: &Device) -> Result<()> {
    Ok(())
}

fn missing_devices_are_refused(device: &Device) -> Result<()> {
    let name = format!("{}:4000", device.info().backend);
    refused(Device::open(&name), ErrorKind::NoDevice, &["4000"]);
    Ok(())
}

fn reading_unwritten_memory_is_refused(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let x = s.alloc::<u32>(100)?;
    let mut y = s.zeros::<u32>(100)?;
    let say = &["never written", "zeros", "assume_written"];
    let place = format!("{}:{}", file!(), line!() + 1);
    refused(s.download(&x), ErrorKind::Uninitialized, &[&place]);
    refused(s.copy(&x, &mut y), ErrorKind::Uninitialized, say);
    refused(s.download_into(&x, &mut [0; 100]), ErrorKind::Uninitialized, say);
    assert_all(&s, &y, 0)
}

fn only_written_elements_can_be_read(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let mut x = s.alloc::<u32>(100)?;
    s.fill(&mut x.slice_mut(10..90)?, 5)?;
    assert_eq!(s.download(&x.slice(10..90)?)?, [5; 80]);
    for range in [0..100, 9..11, 89..91] {
        refused(s.download(&x.slice(range)?), ErrorKind::Uninitialized, &[]);
    }
    s.upload_into(&[5; 10], &mut x.slice_mut(..10)?)?;
    // A kernel may write this range, so we take it as written.
    let kernels = sync::Kernels::load(device)?;
    kernels.step(&s, &mut x.slice_mut(90..)?, 0, 10)?;
    s.fill(&mut x.slice_mut(90..)?, 5)?;
    assert_eq!(s.download(&x)?, [5; 100]);
    // You can tell the library of writes that it cannot see.
    let mut z = s.alloc::<u32>(10)?;
    // SAFETY: its contents are not looked at.
    unsafe { z.view_mut().assume_written() };
    s.download(&z).map(drop)
}

fn recycled_memory_is_unwritten(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let x = s.full(1000, 0x5ec3_e700u32)?;
    let address = x.as_raw();
    drop(x);
    let again = s.alloc::<u32>(1000)?;
    assert_eq!(again.as_raw(), address);
    refused(s.download(&again), ErrorKind::Uninitialized, &[]);
    Ok(())
}

fn host_access_to_device_memory_is_refused(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let mut x = s.full(10, 1u32)?;
    refused(x.view().read(), ErrorKind::Unsupported, &["download"]);
    refused(x.view_mut().write(), ErrorKind::Unsupported, &["device memory"]);
    assert_all(&s, &x, 1)
}

fn kernels_of_another_device_are_refused(device: &Device) -> Result<()> {
    let other = open_again(device, DeviceOptions::default())?;
    let (mine, theirs) = (sync::Kernels::load(device)?, sync::Kernels::load(&other)?);
    let s = device.stream()?;
    let mut x = s.full(10, 1u32)?;
    let say = &["the kernel `step`", "another handle", "Kernels::load(stream.device())"];
    refused(theirs.step(&s, &mut x, 1, 10), ErrorKind::DeviceMismatch, say);
    mine.step(&s, &mut x, 1, 10)?;
    assert_all(&s, &x, 6)
}

/// No driver copies between backends or waits for another backend's events, so you must go through the host.
fn everything_of_another_backend_is_refused(device: &Device) -> Result<()> {
    if device.info().backend == gpustream::BackendName::CPU {
        // This machine may have no other backend. `gpustream`'s own tests prove the refusals on a model of a device.
        return Ok(());
    }
    let other = Device::open("cpu")?;
    let kernels = sync::Kernels::load(device)?;
    let (mine, theirs, flag) = (device.stream()?, other.stream()?, other.flag()?);
    let (mut x, mut y) = (mine.full(10, 1u32)?, theirs.full(10, 2u32)?);
    let mismatch = ErrorKind::DeviceMismatch;
    let say = &["cannot reach", "through the host"];
    refused(mine.copy(&y, &mut x), mismatch, say);
    refused(theirs.download(&x), mismatch, say);
    refused(theirs.fill(&mut x, 1), mismatch, say);
    let say = &["argument 1 of `", "cpu:0", "cannot reach"];
    refused(kernels.step(&mine, &mut y, 1, 10), mismatch, say);
    refused(kernels.spin(&mine, &Launch::new([1; 3], [1; 3]), &flag), mismatch, say);
    refused(mine.wait(&theirs.record()?), mismatch, &["the event", "synchronize"]);
    refused(mine.wait_for(&theirs), mismatch, &["a stream of cpu", "synchronize"]);
    mine.wait(&mine.record()?)?;
    mine.upload_into(&theirs.download(&y)?, &mut x)?;
    assert_all(&mine, &x, 2)
}

fn a_device_describes_itself(device: &Device) -> Result<()> {
    let info = device.info();
    assert!(!info.name.is_empty() && !info.arch.is_empty(), "{info:?}");
    assert!([32, 64].contains(&info.warp_size), "{info:?}");
    assert!(info.multiprocessors > 0 && info.total_memory > 0, "{info:?}");
    assert!(info.limits.max_threads_per_block >= 1024, "{info:?}");
    assert!(info.limits.shared_memory_per_block_optin >= info.limits.shared_memory_per_block, "{info:?}");
    assert!(info.limits.shared_memory_per_block >= 32 << 10, "{info:?}");
    let text = device.to_string();
    assert!(text.contains(&info.name) && text.contains(info.backend.as_str()), "{text}");
    Ok(())
}
