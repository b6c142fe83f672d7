//! A second process beside a test, at the other end of a socket.

use std::env;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;

use gpustream::{Device, Result};

use crate::{Child, Ended};

const SOCKET: &str = "GPUSTREAM_TEST_SOCKET";

/// Runs `part` in a process of its own, with `scene` at the other end of its socket. Returns how the part ended, and the
/// scene's value.
///
/// # Panics
/// Without a socket.
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
            // A child that never connected must not leave the scene waiting.
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

/// Connects a part with its scene.
///
/// # Panics
/// Outside a part.
pub fn connect() -> UnixStream {
    let path = env::var(SOCKET).unwrap();
    UnixStream::connect(Path::new(&path)).unwrap()
}

/// Sends the other process a message without contents.
///
/// # Panics
/// Where the other process has ended.
pub fn tell(mut socket: &UnixStream) {
    socket.write_all(&[1]).unwrap();
}

/// Waits for a message of the other process.
///
/// # Panics
/// Where the other process has ended.
pub fn hear(mut socket: &UnixStream) {
    socket.read_exact(&mut [0]).unwrap();
}

/// Ends this process as a crash of the system's would.
pub fn die() -> ! {
    unsafe extern "C" {
        fn getpid() -> i32;
        fn kill(process: i32, signal: i32) -> i32;
    }
    const SIGKILL: i32 = 9;
    // SAFETY: ends this process alone.
    unsafe { kill(getpid(), SIGKILL) };
    unreachable!("the process was killed")
}
