//! How much host memory the library takes while it is idle.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use gpustream::Device;

/// Returns the resident bytes that this process does not share with others. `/proc/self/statm` counts in pages.
fn own_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: Vec<u64> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
    (pages[1] - pages[2]) * 4096
}

/// Opens a device with a stream, and copies once in each direction. The CPU's driver is part of the library, so its
/// memory counts too.
#[test]
fn an_idle_device_takes_less_than_eight_megabytes() {
    const MOST: u64 = 8 << 20;
    let values = vec![1u8; 1000];
    let before = own_memory();
    let device = Device::open("cpu").unwrap();
    let opened = own_memory() - before;
    assert!(opened < MOST, "{opened} bytes after opening");
    let streams = [device.stream().unwrap(), device.stream().unwrap()];
    for stream in &streams {
        let x = stream.upload(&values).unwrap();
        assert_eq!(stream.download(&x).unwrap(), values);
    }
    let used = own_memory() - before;
    println!("{} KiB after opening, {} KiB after first copies on two streams", opened >> 10, used >> 10);
    assert!(used < MOST, "{used} bytes after first copies");
    // Large copies may take more, but must give it back.
    let large = vec![1u8; 40 << 20];
    let before_copies = own_memory();
    let x = streams[0].upload(&large).unwrap();
    streams[0].download_into(&x, &mut vec![0; 40 << 20]).unwrap();
    drop(x);
    streams[0].synchronize().unwrap();
    device.trim();
    let kept = own_memory().saturating_sub(before_copies);
    println!("{} KiB more after large copies", kept >> 10);
    assert!(used + kept < MOST, "{kept} bytes kept after large copies");
}
