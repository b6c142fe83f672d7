//! Memory that two processes share, and what happens if a driver call fails on the way. The fakes keep device memory on
//! the host.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod fakes;

use std::env;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

use fake_hip::Profile;
use gpustream::{Buffer, Device, ErrorKind, Export, Stream};
use recorder::{Recorder, codes};

use crate::fakes::{in_child, on_each, wait_until_gone, words};

const N: usize = 1000;
/// Tells the exporting process which driver to load. Its socket is its standard input.
const DRIVER: &str = "GPUSTREAM_TEST_DRIVER";

/// Loads the driver of this name.
fn load(driver: &str) -> Recorder {
    match driver {
        "cuda" => fake_cuda::load(),
        "hip 6" => fake_hip::load(Profile::Rocm6),
        _ => fake_hip::load(Profile::Rocm7),
    }
}

fn open(driver: &str) -> (Device, Stream) {
    let name = driver.split(' ').next().unwrap();
    let device = Device::open(name).unwrap();
    let stream = device.stream().unwrap();
    (device, stream)
}

fn import(device: &Device, export: &Export) -> Buffer<u32> {
    // SAFETY: the processes use the memory in turns.
    unsafe { device.import(export) }.unwrap()
}

/// Plays the process that exports and is then killed. It is not a test by itself.
#[test]
fn exporter() {
    let Ok(driver) = env::var(DRIVER) else { return };
    let mut socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned().unwrap());
    let _recorder = load(&driver);
    let (device, stream) = open(&driver);
    let mut x = device.alloc_shared::<u32>(N).unwrap();
    stream.upload_into(&[5; N], &mut x).unwrap();
    stream.synchronize().unwrap();
    x.export().unwrap().send(&socket).unwrap();
    // The other process kills this one while it waits here.
    let _ = socket.read(&mut [0]);
    panic!("not killed");
}

/// Starts the exporter, and receives what it sends.
fn start(driver: &str) -> (Child, UnixStream, Export) {
    let (socket, theirs) = UnixStream::pair().unwrap();
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["exporter", "--exact", "--nocapture"]).stdout(Stdio::null());
    let child = command.env(DRIVER, driver).stdin(OwnedFd::from(theirs)).spawn().unwrap();
    // Now only the child has the other end of the socket, so we can hear when the child ends.
    drop(command);
    let export = Export::receive(&socket).unwrap();
    (child, socket, export)
}

/// Imports from another process, before it is killed and after that.
fn share(driver: &str) {
    const SIGKILL: i32 = 9;
    let recorder = load(driver);
    let before = recorder.live();
    let (device, stream) = open(driver);
    let (mut child, mut socket, export) = start(driver);
    let early = import(&device, &export);
    assert_eq!(stream.download(&early).unwrap(), [5; N]);
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(SIGKILL));
    let _ = socket.write(&[0]);
    let mut late = import(&device, &export);
    drop((early, export));
    assert_eq!(stream.download(&late).unwrap(), [5; N]);
    stream.fill(&mut late, 6).unwrap();
    assert_eq!(stream.download(&late).unwrap(), [6; N]);
    drop((late, stream, device));
    wait_until_gone(&recorder, &before);
    assert_eq!(recorder.violations(), [""; 0]);
}

#[test]
fn memory_outlives_a_killed_exporter_on_cuda() {
    share("cuda");
}

#[test]
fn memory_outlives_a_killed_exporter_on_hip_6() {
    share("hip 6");
}

#[test]
fn memory_outlives_a_killed_exporter_on_hip_7() {
    // The other tests of this process use another version.
    in_child(&[], || share("hip 7"));
}

#[test]
fn a_call_that_fails_leaves_nothing_behind() {
    on_each(|fake, recorder| {
        let (device, stream) = open(fake.name);
        let prefix = if fake.name == "cuda" { "cu" } else { "hip" };
        for call in ["Create", "AddressReserve", "Map", "SetAccess"] {
            let name: &'static str = format!("{prefix}Mem{call}").leak();
            // After the first failure the library gives free memory back to the driver and tries again, so two must
            // fail.
            recorder.fail_next(name, codes::OUT_OF_MEMORY);
            recorder.fail_next(name, codes::OUT_OF_MEMORY);
            let Err(error) = device.alloc_shared::<u32>(N) else { panic!("{name} failed") };
            assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
        }
        let mut x = device.alloc_shared::<u32>(N).unwrap();
        stream.upload_into(&[5; N], &mut x).unwrap();
        stream.synchronize().unwrap();
        let name: &'static str = format!("{prefix}MemExportToShareableHandle").leak();
        recorder.fail_next(name, codes::NOT_SUPPORTED);
        assert_eq!(x.export().unwrap_err().kind(), ErrorKind::Unsupported);
        let export = x.export().unwrap();
        for call in ["ImportFromShareableHandle", "AddressReserve", "Map", "SetAccess"] {
            let name: &'static str = format!("{prefix}Mem{call}").leak();
            recorder.fail_next(name, codes::INVALID_VALUE);
            // SAFETY: nothing is imported.
            assert!(unsafe { device.import::<u32>(&export) }.is_err(), "{name} failed");
        }
        assert_eq!(stream.download(&import(&device, &export)).unwrap(), [5; N]);
    });
}

#[test]
fn memory_of_another_device_is_refused() {
    on_each(|fake, _| {
        let device = Device::open(fake.name).unwrap();
        let other = Device::open(&format!("{}:1", fake.name)).unwrap();
        let export = device.alloc_shared::<u32>(N).unwrap().export().unwrap();
        // SAFETY: nothing is imported.
        let error = unsafe { other.import::<u32>(&export) }.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeviceMismatch, "{error}");
    });
}

/// A driver must not unmap memory that work still uses. If it has to, the fake notes a violation.
#[test]
fn memory_is_unmapped_after_its_last_use() {
    on_each(|fake, recorder| {
        let (device, stream) = open(fake.name);
        let mut x = device.alloc_shared::<u32>(N).unwrap();
        let export = x.export().unwrap();
        recorder.hold();
        stream.fill(&mut x, 7).unwrap();
        drop(x);
        recorder.release();
        stream.synchronize().unwrap();
        assert_eq!(stream.download(&import(&device, &export)).unwrap(), [7; N]);
    });
}

/// A record is one call. A wait is one call too, or none if the record has already been reached.
#[test]
fn a_shared_event_is_one_call() {
    on_each(|fake, recorder| {
        let (device, a) = open(fake.name);
        let b = device.stream().unwrap();
        let event = device.shared_event().unwrap();
        let imported = device.import_event(&event.export().unwrap()).unwrap();
        let names = |work: &dyn Fn()| words(&recorder.record(work).1);
        recorder.hold();
        let record = names(&|| a.record_shared(&event).unwrap());
        let wait = names(&|| b.wait_shared(&imported).unwrap());
        recorder.release();
        b.synchronize().unwrap();
        let reached = names(&|| b.wait_shared(&imported).unwrap());
        assert_eq!(
            (record, wait, reached),
            (vec!["write word"], vec!["wait for word"], vec![]),
            "{}",
            fake.name
        );
    });
}
