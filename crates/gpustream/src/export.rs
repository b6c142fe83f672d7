//! How memory and events get to another process.

use gpustream_core::operation::{call_site, named};
use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use bytemuck::{Pod, Zeroable};
use gpustream_hal::descriptor_message::{self, Received};
use gpustream_hal::{Error, ErrorKind, Result};

/// Device memory or an event on its way to another process. Made by [`Buffer::export`](crate::Buffer::export) and
/// [`SharedEvent::export`](crate::SharedEvent::export).
///
/// The value keeps the memory or the event alive. You may drop what you exported, and end your process once the export was
/// sent. Both are freed when no process holds them or an export of them any more.
///
/// An `Export` is `Send` and `Sync`. Dropping it closes its descriptor.
pub struct Export {
    pub(crate) descriptor: OwnedFd,
    pub(crate) content: Content,
}

/// What a descriptor belongs to, and the facts that travel with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Memory {
        backend: BackendName,
        uuid: [u8; 16],
        /// Never 0.
        bytes: u64,
    },
    Event,
}

/// A backend's name, cut to 8 bytes or padded with zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BackendName([u8; 8]);

impl BackendName {
    pub(crate) fn new(backend: &str) -> Self {
        let mut name = [0; 8];
        for (to, from) in name.iter_mut().zip(backend.bytes()) {
            *to = from;
        }
        Self(name)
    }
}

impl fmt::Display for BackendName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(String::from_utf8_lossy(&self.0).trim_end_matches('\0'))
    }
}

/// The first bytes of a message: a name, and the version of what follows.
const MAGIC: [u8; 8] = *b"gpstrm\0\x01";

/// A message, byte for byte.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Message {
    magic: [u8; 8],
    /// A backend's name, or [`EVENT`].
    name: [u8; 8],
    uuid: [u8; 16],
    /// The length of the memory, with the least significant byte first.
    bytes: [u8; 8],
}

const MESSAGE: usize = size_of::<Message>();

/// Replaces the backend's name if the export is an event.
const EVENT: [u8; 8] = *b"event\0\0\0";

impl Content {
    fn to_bytes(&self) -> [u8; MESSAGE] {
        let (name, uuid, bytes) = match self {
            Self::Memory { backend, uuid, bytes } => (backend.0, *uuid, *bytes),
            Self::Event => (EVENT, [0; 16], 0),
        };
        bytemuck::cast(Message { magic: MAGIC, name, uuid, bytes: bytes.to_le_bytes() })
    }

    fn from_bytes(message: &[u8; MESSAGE]) -> Result<Self> {
        let Message { magic, name, uuid, bytes } = bytemuck::cast(*message);
        if magic != MAGIC {
            return Err(invalid(
                "the bytes that arrived are not an export, or come from another version of gpustream; send with `Export::send` of \
                 the same version, and send nothing else before it",
            ));
        }
        match u64::from_le_bytes(bytes) {
            _ if name == EVENT => Ok(Self::Event),
            0 => Err(invalid(
                "the export that arrived has 0 bytes of memory, which `Export::send` never sends; it is damaged",
            )),
            bytes => Ok(Self::Memory { backend: BackendName(name), uuid, bytes }),
        }
    }
}

impl Export {
    /// Returns how many bytes the memory has, or 0 for an event.
    pub fn bytes(&self) -> u64 {
        match self.content {
            Content::Memory { bytes, .. } => bytes,
            Content::Event => 0,
        }
    }

    /// Sends the export through a Unix socket. The other process must call [`receive`](Self::receive). Blocks while the socket
    /// is full.
    ///
    /// # Errors
    /// [`ErrorKind::External`] if the socket fails.
    #[track_caller]
    pub fn send(&self, socket: &UnixStream) -> Result<()> {
        named(call_site("send"), || {
            let message = self.content.to_bytes();
            let failed = |error: io::Error| external("sending an export", error);
            let sent = descriptor_message::send(socket, &message, self.descriptor.as_fd()).map_err(failed)?;
            // The descriptor was sent with the first byte.
            (&*socket).write_all(&message[sent..]).map_err(failed)
        })
    }

    /// Receives an export that another process [sends](Self::send). Blocks until the whole message has arrived, or until the
    /// socket's own timeout ([`UnixStream::set_read_timeout`]).
    ///
    /// # Errors
    /// [`ErrorKind::External`] if the socket fails or is closed; [`ErrorKind::InvalidArgument`] if this is not an export's
    /// message, or if it does not come with exactly one file descriptor.
    #[track_caller]
    pub fn receive(socket: &UnixStream) -> Result<Self> {
        named(call_site("receive"), || {
            let mut message = [0; MESSAGE];
            let failed = |error: io::Error| external("receiving an export", error);
            let Received { bytes, mut descriptors, truncated } =
                descriptor_message::receive(socket, &mut message).map_err(failed)?;
            if bytes == 0 {
                return Err(failed(io::ErrorKind::UnexpectedEof.into()));
            }
            (&*socket).read_exact(&mut message[bytes..]).map_err(failed)?;
            let content = Content::from_bytes(&message)?;
            let count = descriptors.len();
            match (descriptors.pop(), count) {
                (Some(descriptor), 1) if !truncated => Ok(Self { descriptor, content }),
                _ => Err(invalid(format!(
                    "{count} file descriptors came with the message, and an export has exactly one; send it with `Export::send`"
                ))),
            }
        })
    }
}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.content {
            Content::Memory { backend, bytes, .. } => write!(f, "Export({bytes} bytes of {backend})"),
            Content::Event => f.write_str("Export(an event)"),
        }
    }
}

pub(crate) fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}

/// Returns another descriptor of the same file.
pub(crate) fn copy_of(descriptor: &OwnedFd) -> Result<OwnedFd> {
    descriptor.try_clone().map_err(|error| external("copying the file descriptor of an export", error))
}

pub(crate) fn external(what: &str, error: io::Error) -> Error {
    Error::external(error).with_context(what)
}
