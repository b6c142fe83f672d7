//! Every call of the memory side of the API fails once, on drivers that log: what had to be undone is, and everything
//! goes on.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use fake_cuda::codes;
use gpustream::{Device, DeviceOptions, ErrorKind, MemoryPool, Pitched, Place, Result};
use recorder::Recorder;

type Load = fn() -> Recorder;

const FAKES: [(&str, Load); 2] =
    [("cuda", fake_cuda::load), ("hip", || fake_hip::load(fake_hip::Profile::Rocm6))];

const POLICIES: [MemoryPool; 1] = [MemoryPool::Library];

/// Allocations, short and long copies of slices, boxes, host memory of each kind, a pipeline, and giving back.
fn scenario(device: &Device) -> Result<u64> {
    let (a, b) = (device.stream()?, device.stream()?);
    let values: Vec<u32> = (0..30_000).collect();
    let mut x = a.upload(&values[..10])?;
    let long = a.upload(&values)?;
    a.upload_into(&values[..10], &mut x)?;
    let mut y = b.zeros::<u32>(30_000)?;
    b.copy(&long, &mut y)?;
    drop(long);
    a.fill(&mut y.slice_mut(..5)?, 7)?;
    let mut tile = b.full(9, 1u32)?;
    b.copy_box(&y, Pitched::rows(100), &mut tile, Pitched::rows(3), [3, 3, 1])?;
    let mut host = device.pinned::<u32>(100)?;
    a.copy(&y.slice(..100)?, &mut host)?;
    let mut registered = device.register(vec![3u32; 5000])?;
    b.copy(&host, &mut registered.slice_mut(..100)?)?;
    let mut sum: u64 = registered.read()?[..6].iter().map(|&value| u64::from(value)).sum();
    if device.info().managed_memory {
        let mut table = device.managed::<u32>(100)?;
        table.write()?[0] = 5;
        a.prefetch(&table, Place::Device)?;
    }
    let mut output = vec![0u32; 1000];
    let mut pipeline = device.pipeline().chunks(400);
    pipeline.map(&values[..1000], &mut output, |s, piece| s.copy(&piece.input, &mut piece.output))?;
    sum += u64::from(output[999]) + a.download(&y)?.iter().map(|&value| u64::from(value)).sum::<u64>();
    device.synchronize()?;
    drop((x, y, tile, host, registered));
    device.trim();
    Ok(sum)
}

#[test]
fn a_failure_at_any_call_is_undone() {
    for (name, load) in FAKES {
        for policy in POLICIES {
            let options = DeviceOptions::default().pool(policy).staging_threads(1);
            let mut want = None;
            let mut failures = 0;
            for n in 0.. {
                let recorder = load();
                let device = Device::open_with(name, options).unwrap();
                let want = *want.get_or_insert_with(|| scenario(&device).unwrap());
                recorder.fail_at(n, codes::OUT_OF_MEMORY);
                let result = scenario(&device);
                let failed = recorder.disarm();
                let what = format!("{name}, {policy:?}, call {n}");
                match result {
                    Ok(sum) => assert_eq!(sum, want, "{what}"),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{what}: {error}");
                        failures += 1;
                    }
                }
                if !failed {
                    break;
                }
                let again = scenario(&device).unwrap_or_else(|error| panic!("after {what}: {error}"));
                assert_eq!(again, want, "after {what}");
                device.synchronize().unwrap();
                device.trim();
                let stats = device.memory_stats();
                assert_eq!((stats.used, stats.live), (0, 0), "{what}: {stats:?}");
                drop(device);
                assert_eq!(recorder.violations(), [""; 0], "{what}");
                assert!(n < 2000, "the scenario has no end");
            }
            assert!(failures > 20, "{name}, {policy:?}: only {failures} calls failed");
        }
    }
}
