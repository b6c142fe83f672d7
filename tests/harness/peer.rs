//! A second process for tests that need one. A socket connects the two.

use std::env;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;

use gpustream::{Device, Result};

use crate::{Child, Ended};

const SOCKET: &str = "GPUSTREAM_TEST_SOCKET";

/// Runs `part` in a child, and `scene` here with the other end of its socket. Returns how the child ended, and what
/// `scene` returned.
///
/// # Panics
/// If the socket cannot be made.
pub fn beside<R>(
    device: &Device,
    part: &str,
    scene: impl FnOnce(UnixStream) -> Result<R>,
) -> Result<(Ended, R)> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let child = Child::of(device, part).env(SOCKET, path.to_str().unwrap());
    thread::scope(|scope| {
        let child = scope.spawn(|| {
            let ended = child.run();
            // If the child never connected, the scene is still waiting for it, so we connect instead.
            let _ = UnixStream::connect(&path);
            ended
        });
        let (socket, _) = listener.accept().unwrap();
        let value = scene(socket);
        let ended = child.join().unwrap()?;
        match value {
            Ok(value) => Ok((ended, value)),
            Err(error) => Err(error.with_context(&ended.output)),
        }
    })
}

/// Connects a child with its scene.
///
/// # Panics
/// If this process is not such a child.
pub fn connect() -> UnixStream {
    let path = env::var(SOCKET).unwrap();
    UnixStream::connect(Path::new(&path)).unwrap()
}

/// Sends the other process a message without contents.
///
/// # Panics
/// If the other process has ended.
pub fn tell(mut socket: &UnixStream) {
    socket.write_all(&[1]).unwrap();
}

/// Waits for a message from the other process.
///
/// # Panics
/// If the other process has ended.
pub fn hear(mut socket: &UnixStream) {
    socket.read_exact(&mut [0]).unwrap();
}

/// Kills this process, so that it ends as suddenly as in a crash.
pub fn die() -> ! {
    unsafe extern "C" {
        fn getpid() -> i32;
        fn kill(process: i32, signal: i32) -> i32;
    }
    const SIGKILL: i32 = 9;
    // SAFETY: this ends the calling process and no other.
    unsafe { kill(getpid(), SIGKILL) };
    unreachable!("the process was killed")
}
