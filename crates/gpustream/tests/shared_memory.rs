//! Another process may send any message and any descriptors. If they are not an export, that must be an error.
#![cfg(feature = "cpu")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::fs::File;
use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use gpustream::{Device, ErrorKind, Export, Result};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// The message of an export: name and version, backend, device, bytes.
fn message(backend: [u8; 8], bytes: u64) -> Vec<u8> {
    [&b"gpstrm\0\x01"[..], &backend, b"the machine's   ", &bytes.to_le_bytes()].concat()
}

fn cpu(bytes: u64) -> Vec<u8> {
    message(*b"cpu\0\0\0\0\0", bytes)
}

/// Receives a message that came with these descriptors.
fn received(message: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<Export> {
    let (sender, receiver) = UnixStream::pair().unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
    }
    sendmsg(&sender, &[IoSlice::new(message)], &mut control, SendFlags::empty()).unwrap();
    drop(sender);
    Export::receive(&receiver)
}

/// Makes a file in memory.
fn file(bytes: u64, seals: SealFlags) -> OwnedFd {
    let file = memfd_create("test", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, bytes).unwrap();
    fcntl_add_seals(&file, seals).unwrap();
    file
}

const SEALED: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

#[track_caller]
fn refused<T>(result: Result<T>, kind: ErrorKind, text: &str) {
    let Err(error) = result else { panic!("this should have been refused") };
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(text), "{error}");
}

/// Imports a descriptor as that many bytes of a CPU device.
fn imported(file: BorrowedFd<'_>, bytes: u64) -> Result<()> {
    let export = received(&cpu(bytes), &[file])?;
    // SAFETY: the memory is never used.
    unsafe { Device::open("cpu")?.import::<u8>(&export) }.map(drop)
}

#[test]
fn a_message_that_is_no_export_is_refused() {
    let file = file(4096, SEALED);
    refused(received(&[7; 40], &[file.as_fd()]), ErrorKind::InvalidArgument, "another version");
    let mut later = cpu(4096);
    later[7] = 2;
    refused(received(&later, &[file.as_fd()]), ErrorKind::InvalidArgument, "another version");
    refused(received(&cpu(0), &[file.as_fd()]), ErrorKind::InvalidArgument, "0 bytes");
}

#[test]
fn a_socket_that_is_closed_is_an_error() {
    let file = file(4096, SEALED);
    refused(received(&cpu(4096)[..39], &[file.as_fd()]), ErrorKind::External, "receiving an export");
    let (sender, receiver) = UnixStream::pair().unwrap();
    drop(sender);
    refused(Export::receive(&receiver), ErrorKind::External, "receiving an export");

    let export = received(&cpu(4096), &[file.as_fd()]).unwrap();
    let (sender, receiver) = UnixStream::pair().unwrap();
    drop(receiver);
    refused(export.send(&sender), ErrorKind::External, "sending an export");
}

#[test]
fn another_number_of_descriptors_than_one_is_refused_and_none_stays_open() {
    let file = file(4096, SEALED);
    for count in [0, 2, 3, 8] {
        let (probe, other) = UnixStream::pair().unwrap();
        let mut descriptors = vec![file.as_fd(); count];
        if let Some(last) = descriptors.last_mut() {
            *last = other.as_fd();
        }
        refused(received(&cpu(4096), &descriptors), ErrorKind::InvalidArgument, "file descriptors");
        drop(other);
        // We have closed every copy of this end, so the other end must be told.
        assert!((&probe).write_all(&[0]).is_err(), "{count} descriptors: one of them stays open");
    }
}

#[test]
fn a_message_may_come_in_pieces() -> Result<()> {
    let (sender, receiver) = UnixStream::pair().unwrap();
    let file = file(4096, SEALED);
    let message = cpu(4096);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [file.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
    sendmsg(&sender, &[IoSlice::new(&message[..1])], &mut control, SendFlags::empty()).unwrap();
    std::thread::scope(|scope| {
        let export = scope.spawn(|| Export::receive(&receiver));
        (&sender).write_all(&message[1..20]).unwrap();
        (&sender).write_all(&message[20..]).unwrap();
        assert_eq!(export.join().unwrap()?.bytes(), 4096);
        Ok(())
    })
}

#[test]
fn memory_that_could_be_taken_away_is_refused() {
    // If a process touched a page after the file's end, it would be killed.
    for seals in [SealFlags::empty(), SealFlags::GROW, SealFlags::SHRINK] {
        refused(imported(file(4096, seals).as_fd(), 4096), ErrorKind::InvalidArgument, "length may change");
    }
    refused(imported(tempfile().as_fd(), 4096), ErrorKind::InvalidArgument, "length may change");
    let (socket, _) = UnixStream::pair().unwrap();
    refused(imported(socket.as_fd(), 4096), ErrorKind::InvalidArgument, "length may change");
    imported(file(4096, SEALED).as_fd(), 4096).unwrap();
}

fn tempfile() -> File {
    File::open(std::env::current_exe().unwrap()).unwrap()
}

#[test]
fn memory_that_is_shorter_than_the_message_says_is_refused() {
    let file = file(4096, SEALED);
    for bytes in [4097, 1 << 40, u64::MAX - 4095, u64::MAX] {
        refused(imported(file.as_fd(), bytes), ErrorKind::InvalidArgument, "cannot import");
    }
    imported(file.as_fd(), 1).unwrap();
}

#[test]
fn memory_that_cannot_be_written_is_refused() {
    let file = file(4096, SEALED | SealFlags::WRITE);
    refused(imported(file.as_fd(), 4096), ErrorKind::InvalidArgument, "cannot import 4096 bytes");
}

#[test]
fn memory_of_another_device_is_refused() -> Result<()> {
    let file = file(4096, SEALED);
    let device = Device::open("cpu")?;
    let theirs = received(&message(*b"cuda\0\0\0\0", 4096), &[file.as_fd()])?;
    // SAFETY: nothing is imported.
    refused(unsafe { device.import::<u8>(&theirs) }, ErrorKind::DeviceMismatch, "backend cuda");
    let mut other = cpu(4096);
    other[16] = 0;
    let theirs = received(&other, &[file.as_fd()])?;
    // SAFETY: nothing is imported.
    refused(unsafe { device.import::<u8>(&theirs) }, ErrorKind::DeviceMismatch, "another device");
    Ok(())
}

/// The message of an event.
fn event() -> Vec<u8> {
    [&b"gpstrm\0\x01event\0\0\0"[..], &[0; 24]].concat()
}

#[test]
fn a_file_that_is_no_event_is_refused() {
    let device = Device::open("cpu").unwrap();
    for file in
        [file(4096, SealFlags::empty()), file(4095, SEALED), file(8192, SEALED), OwnedFd::from(tempfile())]
    {
        let export = received(&event(), &[file.as_fd()]).unwrap();
        refused(device.import_event(&export), ErrorKind::InvalidArgument, "file descriptor");
    }
    // The page can be mapped, but not written.
    let fixed = file(4096, SEALED | SealFlags::WRITE);
    let export = received(&event(), &[fixed.as_fd()]).unwrap();
    refused(device.import_event(&export), ErrorKind::External, "mapping");
}

#[test]
fn an_event_that_another_process_has_written_over_is_an_error() {
    let page = File::from(file(4096, SEALED));
    (&page).write_all(&[0xff; 8]).unwrap();
    let device = Device::open("cpu").unwrap();
    let stream = device.stream().unwrap();
    let event = device.import_event(&received(&event(), &[page.as_fd()]).unwrap()).unwrap();
    refused(stream.wait_shared(&event), ErrorKind::External, "written over");
    refused(event.is_done(), ErrorKind::External, "written over");
}

#[test]
fn an_event_that_the_end_of_its_process_leaves_without_a_reach_is_abandoned() -> Result<()> {
    let page = File::from(file(4096, SEALED));
    // This names the third record of slot 0, which is never reached.
    (&page).write_all(&3_u64.to_le_bytes()).unwrap();
    let device = Device::open("cpu")?;
    let stream = device.stream()?;
    let event = device.import_event(&received(&event(), &[page.as_fd()])?)?;
    stream.wait_shared(&event)?;
    assert!(!stream.is_done()?);
    event.abandon();
    stream.synchronize()
}
