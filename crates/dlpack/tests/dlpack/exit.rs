//! A process may end while tensors of either direction are alive, in use, or being deleted.

use std::env;
use std::process::{Command, exit};
use std::sync::Mutex;
use std::thread;

use gpustream_dlpack::ffi::DLManagedTensor;
use gpustream_dlpack::{Managed, Tensor, into_dlpack};

use crate::theirs::Theirs;
use crate::{hold, stream};

/// The variable that names a child's scene.
const SCENE: &str = "GPUSTREAM_DLPACK_SCENE";
/// The exit code of a child that reached the end of its scene.
const CODE: i32 = 42;

static KEPT: Mutex<Vec<(Tensor<f32>, Managed<DLManagedTensor>)>> = Mutex::new(Vec::new());

thread_local! {
    static LATE: std::cell::RefCell<Vec<Tensor<f32>>> = const { std::cell::RefCell::new(Vec::new()) };
}

const SCENES: [(&str, fn()); 4] = [
    ("tensors in a static", || {
        let stream = stream();
        let exported = into_dlpack(stream.zeros::<f32>(4).unwrap(), &[4], &stream).unwrap();
        KEPT.lock().unwrap().push((tensor(&stream), exported));
    }),
    ("a tensor in a variable of the main thread", || {
        LATE.with_borrow_mut(|late| late.push(tensor(&stream())));
    }),
    ("a tensor in use", || {
        let stream = stream();
        let tensor = tensor(&stream);
        let mut copy = stream.alloc::<f32>(4).unwrap();
        std::mem::forget(hold(&stream));
        stream.copy(&tensor.view(), &mut copy).unwrap();
        drop(tensor);
        std::mem::forget((copy, stream));
    }),
    ("tensors on their way out", || {
        let stream = stream();
        let tensors: Vec<_> = (0..100).map(|_| tensor(&stream)).collect();
        thread::spawn(move || drop(tensors));
        std::mem::forget(stream);
    }),
];

fn tensor(stream: &gpustream::Stream) -> Tensor<f32> {
    let made = Theirs::f32(&[4]).managed::<DLManagedTensor, f32>(&[0.0; 4]);
    let tensor = made.taken(stream).unwrap();
    std::mem::forget(made);
    tensor
}

/// Plays the scene that the environment names. It runs in a child of the test below.
#[test]
fn child() {
    let Ok(scene) = env::var(SCENE) else { return };
    SCENES.iter().find(|(name, _)| *name == scene).unwrap().1();
    exit(CODE);
}

#[test]
fn process_ends_whatever_is_alive() {
    for (scene, _) in SCENES {
        let mut command = Command::new(env::current_exe().unwrap());
        let output =
            command.args(["--exact", "exit::child", "--nocapture"]).env(SCENE, scene).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(CODE), "{scene}: {:?}\n{text}", output.status);
    }
}
