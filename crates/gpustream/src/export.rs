//! Memory and events on their way to another process.

use gpustream_core::operation::{call_site, named};
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use bytemuck::{Pod, Zeroable};
use gpustream_hal::{Error, ErrorKind, Result};
use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Device memory or an event on its way to another process, made by [`Buffer::export`](crate::Buffer::export) and
/// [`SharedEvent::export`](crate::SharedEvent::export).
///
/// The value holds the memory or the event: the one that was exported may be dropped, and the process may end once the export
/// was sent. Both are freed when no process has one of them or an export.
///
/// An `Export` is `Send` and `Sync`. Dropping it closes its descriptor.
pub struct Export {
    pub(crate) descriptor: OwnedFd,
    pub(crate) content: Content,
}

/// The thing that a descriptor is of, and the facts that travel with it.
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

/// The beginning of a backend's name, filled up with zeros.
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
    /// The length of the memory, the least significant byte first.
    bytes: [u8; 8],
}

const MESSAGE: usize = size_of::<Message>();

/// The name of an event, in the place of a backend's name.
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
                "receiving an export: the bytes are no export's, or one of another version of gpustream; send with \
                 `Export::send` of the same version, and nothing else before it",
            ));
        }
        match u64::from_le_bytes(bytes) {
            _ if name == EVENT => Ok(Self::Event),
            0 => Err(invalid("receiving an export: memory of no bytes")),
            bytes => Ok(Self::Memory { backend: BackendName(name), uuid, bytes }),
        }
    }
}

impl Export {
    /// Returns the length of the memory; an event has none.
    pub fn bytes(&self) -> u64 {
        match self.content {
            Content::Memory { bytes, .. } => bytes,
            Content::Event => 0,
        }
    }

    /// Sends the export through a Unix socket. The other process calls [`receive`](Self::receive). Blocks while the socket
    /// is full.
    ///
    /// # Errors
    /// [`ErrorKind::External`] where the socket fails.
    #[track_caller]
    pub fn send(&self, socket: &UnixStream) -> Result<()> {
        named(call_site("send"), || {
            let message = self.content.to_bytes();
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let descriptors = [self.descriptor.as_fd()];
            control.push(SendAncillaryMessage::ScmRights(&descriptors));
            let failed = |error: io::Error| external("sending an export", error);
            let parts = [IoSlice::new(&message)];
            let sent = retry_on_intr(|| sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL))
                .map_err(|error| failed(error.into()))?;
            // The descriptor has gone with the first byte.
            (&*socket).write_all(&message[sent..]).map_err(failed)
        })
    }

    /// Receives an export that another process [sends](Self::send). Blocks until all of the message is there, or as long as the
    /// socket's own limit ([`UnixStream::set_read_timeout`]).
    ///
    /// # Errors
    /// [`ErrorKind::External`] where the socket fails or is closed; [`ErrorKind::InvalidArgument`] for another message, or one
    /// with another number of file descriptors than one.
    #[track_caller]
    pub fn receive(socket: &UnixStream) -> Result<Self> {
        named(call_site("receive"), || {
            let mut message = [0; MESSAGE];
            // Room for one more than there should be, so that more are noticed. The system closes those without room.
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let failed = |error: io::Error| external("receiving an export", error);
            let mut parts = [IoSliceMut::new(&mut message)];
            let received =
                retry_on_intr(|| recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC))
                    .map_err(|error| failed(error.into()))?;
            let mut descriptors: Vec<OwnedFd> = Vec::new();
            for part in control.drain() {
                if let RecvAncillaryMessage::ScmRights(received) = part {
                    descriptors.extend(received);
                }
            }
            if received.bytes == 0 {
                return Err(failed(io::ErrorKind::UnexpectedEof.into()));
            }
            (&*socket).read_exact(&mut message[received.bytes..]).map_err(failed)?;
            let content = Content::from_bytes(&message)?;
            let count = descriptors.len();
            match (descriptors.pop(), count) {
                (Some(descriptor), 1) if !received.flags.contains(ReturnFlags::CTRUNC) => {
                    Ok(Self { descriptor, content })
                }
                _ => Err(invalid(format!(
                    "receiving an export: {count} file descriptors came with the message, and an export has one"
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
