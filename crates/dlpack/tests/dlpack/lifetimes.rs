//! Deleters run exactly once and after the last use, whatever is dropped first, and wherever.

use std::panic::panic_any;
use std::slice;
use std::sync::mpsc::{TryRecvError, channel};

use gpustream::{Buffer, ErrorKind};
use gpustream_dlpack::ffi::{DLManagedTensor, DLManagedTensorVersioned};
use gpustream_dlpack::{from_dlpack, into_dlpack};

use crate::theirs::{Made, Theirs};
use crate::{hold, stream};

fn made() -> Made<DLManagedTensorVersioned> {
    Theirs::f32(&[4]).managed(&[1.0f32, 2.0, 3.0, 4.0])
}

#[test]
fn deleter_waits_for_the_last_use() {
    let (stream, made) = (stream(), made());
    let tensor = made.taken::<f32>(&stream).unwrap();
    let mut copy = stream.alloc::<f32>(4).unwrap();
    let release = hold(&stream);
    stream.copy(&tensor.view(), &mut copy).unwrap();
    drop(tensor);
    // The library looks which uses are done, and must find that this one is not.
    drop(stream.device().stream().unwrap().zeros::<f32>(4).unwrap());
    stream.device().trim();
    assert_eq!(made.deletions.try_recv(), Err(TryRecvError::Empty));
    drop(release);
    assert_eq!(made.count(), 1);
    assert_eq!(stream.download(&copy).unwrap(), [1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn use_on_another_stream_counts_too() {
    let (a, made) = (stream(), made());
    let b = a.device().stream().unwrap();
    let tensor = made.taken::<f32>(&a).unwrap();
    let mut copy = b.alloc::<f32>(4).unwrap();
    let release = hold(&b);
    b.copy(&tensor.view(), &mut copy).unwrap();
    drop(tensor);
    a.synchronize().unwrap();
    assert_eq!(made.deletions.try_recv(), Err(TryRecvError::Empty));
    drop(release);
    assert_eq!(made.count(), 1);
}

#[test]
fn tensor_outlives_its_stream_and_device() {
    let (first, made) = (stream(), made());
    let tensor = made.taken::<f32>(&first).unwrap();
    drop(first);
    let other = stream();
    assert_eq!(other.download(&tensor.view()).unwrap(), [1.0, 2.0, 3.0, 4.0]);
    drop(other);
    drop(tensor);
    assert_eq!(made.count(), 1);
}

#[test]
fn two_libraries_hand_memory_to_and_fro() {
    let stream = stream();
    let before = stream.device().memory_stats().used;
    let buffer = stream.upload(&[1.0f32; 100]).unwrap();
    let address = buffer.as_raw();
    let theirs = into_dlpack::<DLManagedTensor, _>(buffer, &[100], &stream).unwrap();
    // SAFETY: the other library does nothing with it.
    let mut tensor = unsafe { from_dlpack::<f32, _>(&stream, theirs) }.unwrap();
    assert_eq!(tensor.view().as_raw(), address);
    stream.fill(&mut tensor.view_mut().unwrap(), 2.0).unwrap();
    assert_eq!(stream.download(&tensor.view()).unwrap(), [2.0; 100]);
    drop(tensor);
    // The deleter gives the memory back on a thread of the library.
    while stream.device().memory_stats().used != before {
        std::thread::yield_now();
    }
}

#[test]
fn host_closure_may_drop_tensors_and_take_none_in() {
    let (stream, kept, refused) = (stream(), made(), made());
    let tensor = kept.taken::<f32>(&stream).unwrap();
    let exported = into_dlpack::<DLManagedTensor, _>(stream.zeros::<f32>(4).unwrap(), &[4], &stream).unwrap();
    let (tell, told) = channel();
    let (theirs, inside) = (refused.managed(), stream.device().stream().unwrap());
    stream
        .host_fn(move || {
            // SAFETY: the tensor is not shared.
            let error = unsafe { from_dlpack::<f32, _>(&inside, theirs) }.unwrap_err();
            drop((tensor, exported));
            tell.send(error.kind()).unwrap();
        })
        .unwrap();
    assert_eq!(told.recv().unwrap(), ErrorKind::InHostClosure);
    assert_eq!((kept.count(), refused.count()), (1, 1));
    stream.synchronize().unwrap();
}

/// An owner that reports when it is dropped, and then panics.
struct Panics(Vec<f32>, std::sync::mpsc::Sender<()>);

impl Drop for Panics {
    fn drop(&mut self) {
        self.1.send(()).unwrap();
        panic_any("the owner panics");
    }
}

#[test]
fn owner_that_panics_does_no_harm() {
    let stream = stream();
    let (dropped, drops) = channel();
    let mut owner = Panics(vec![3.0; 4], dropped);
    let memory = owner.0.as_mut_ptr();
    // SAFETY: the owner does not move its values.
    let buffer = unsafe { Buffer::<f32>::from_raw(&stream, memory, 4, owner) }.unwrap();
    let theirs = into_dlpack::<DLManagedTensorVersioned, _>(buffer, &[4], &stream).unwrap().into_raw();
    // SAFETY: the work on the CPU is done, and the consumer deletes the tensor once.
    unsafe {
        let tensor = (*theirs.as_ptr()).dl_tensor;
        assert_eq!(slice::from_raw_parts(tensor.data.cast::<f32>(), 4), [3.0; 4]);
        (*theirs.as_ptr()).deleter.unwrap()(theirs.as_ptr());
    }
    assert_eq!(drops.iter().count(), 1);
    assert_eq!(stream.download(&stream.full(4, 1u8).unwrap()).unwrap(), [1; 4]);
}

#[test]
fn many_tensors_leave_nothing_behind() {
    let stream = stream();
    let before = stream.device().memory_stats().used;
    for _ in 0..1000 {
        let made = made();
        let tensor = made.taken::<f32>(&stream).unwrap();
        let mut buffer = stream.alloc::<f32>(4).unwrap();
        stream.copy(&tensor.view(), &mut buffer).unwrap();
        drop(tensor);
        drop(into_dlpack::<DLManagedTensor, _>(buffer, &[2, 2], &stream).unwrap());
        assert_eq!(made.count(), 1);
    }
    assert_eq!(stream.device().memory_stats().used, before);
}
