//! Memory of several processes.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use bytemuck::Pod;
use gpustream_core::foreign::ForeignOwner;
use gpustream_core::inside;
use gpustream_core::memory::byte_len;
use gpustream_core::operation::operation;
use gpustream_hal::{Device as HalDevice, Error, ErrorKind, Result, SharedMapping};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::buffer::{Buffer, Owned};
use crate::device::Device;

/// A mapping of memory that other processes may map too, which ends with the value.
pub(crate) struct Mapping {
    device: Arc<dyn HalDevice>,
    /// `None` only while the value is dropped.
    raw: Option<SharedMapping>,
    /// The descriptor that imported memory came from. CUDA exports no memory that it has imported.
    imported: Option<OwnedFd>,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Some(mapping) = self.raw.take() {
            let device = self.device.clone();
            inside::outside(move || {
                // SAFETY: the block's owner goes once its last use is known to be done, and a buffer that names the mapping
                // goes after its own uses.
                let _ = unsafe { device.shared_unmap(mapping) };
            });
        }
    }
}

/// Device memory on its way to another process, made by [`Buffer::export`].
///
/// The value holds the memory: the buffer may be dropped, and the process may end once the memory was sent. The memory is
/// freed when no process has a buffer of it or an export.
pub struct Export {
    descriptor: OwnedFd,
    header: Header,
}

/// The facts that travel with a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Header {
    /// The beginning of the backend's name, filled up with zeros.
    backend: [u8; 8],
    uuid: [u8; 16],
    /// Never 0.
    bytes: u64,
}

/// The first bytes of a message: a name, and the version of what follows.
const MAGIC: [u8; 8] = *b"gpstrm\0\x01";
const MESSAGE: usize = 40;

impl Header {
    fn to_bytes(&self) -> [u8; MESSAGE] {
        let mut message = [0; MESSAGE];
        message[..8].copy_from_slice(&MAGIC);
        message[8..16].copy_from_slice(&self.backend);
        message[16..32].copy_from_slice(&self.uuid);
        message[32..].copy_from_slice(&self.bytes.to_le_bytes());
        message
    }

    fn from_bytes(message: &[u8; MESSAGE]) -> Result<Self> {
        let [mut magic, mut backend, mut bytes] = [[0; 8]; 3];
        let mut uuid = [0; 16];
        magic.copy_from_slice(&message[..8]);
        backend.copy_from_slice(&message[8..16]);
        uuid.copy_from_slice(&message[16..32]);
        bytes.copy_from_slice(&message[32..]);
        if magic != MAGIC {
            return Err(invalid(
                "receiving memory: the bytes are no export's, or one of another version of gpustream; send with \
                 `Export::send` of the same version, and nothing else before it",
            ));
        }
        match u64::from_le_bytes(bytes) {
            0 => Err(invalid("receiving memory: an export of no bytes")),
            bytes => Ok(Self { backend, uuid, bytes }),
        }
    }

    fn backend(&self) -> String {
        String::from_utf8_lossy(&self.backend).trim_end_matches('\0').to_owned()
    }
}

impl Export {
    /// Returns the length of the memory.
    pub fn bytes(&self) -> u64 {
        self.header.bytes
    }

    /// Sends the memory through a Unix socket. The other process calls [`receive`](Self::receive). Blocks while the socket
    /// is full.
    ///
    /// # Errors
    /// [`ErrorKind::External`] where the socket fails.
    pub fn send(&self, socket: &UnixStream) -> Result<()> {
        let message = self.header.to_bytes();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [self.descriptor.as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        let failed = |error: io::Error| external("sending memory", error);
        let sent = loop {
            match sendmsg(socket, &[IoSlice::new(&message)], &mut control, SendFlags::NOSIGNAL) {
                Err(rustix::io::Errno::INTR) => {}
                other => break other.map_err(|error| failed(error.into()))?,
            }
        };
        // The descriptor has gone with the first byte.
        (&*socket).write_all(&message[sent..]).map_err(failed)
    }

    /// Receives memory that another process [sends](Self::send). Blocks until all of the message is there, or as long as the
    /// socket's own limit ([`UnixStream::set_read_timeout`]).
    ///
    /// # Errors
    /// [`ErrorKind::External`] where the socket fails or is closed; [`ErrorKind::InvalidArgument`] for another message, or one
    /// with another number of file descriptors than one.
    pub fn receive(socket: &UnixStream) -> Result<Self> {
        let mut message = [0; MESSAGE];
        // Room for one more than there should be, so that more are noticed. The system closes those without room.
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let failed = |error: io::Error| external("receiving memory", error);
        let received = loop {
            let mut parts = [IoSliceMut::new(&mut message)];
            match recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(rustix::io::Errno::INTR) => {}
                other => break other.map_err(|error| failed(error.into()))?,
            }
        };
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
        let header = Header::from_bytes(&message)?;
        let count = descriptors.len();
        match (descriptors.pop(), count) {
            (Some(descriptor), 1) if !received.flags.contains(ReturnFlags::CTRUNC) => {
                Ok(Self { descriptor, header })
            }
            _ => Err(invalid(format!(
                "receiving memory: {count} file descriptors came with the message, and an export has one"
            ))),
        }
    }
}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Export({} bytes of {})", self.header.bytes, self.header.backend())
    }
}

impl Device {
    /// Allocates memory that other processes can use too, by [`Buffer::export`] (`cuMemCreate`, `hipMemCreate`, a sealed
    /// `memfd`). The contents are unspecified. In all else the buffer is like any other.
    ///
    /// The call takes far longer than one of the pool's, and memory comes in pieces of the driver's size, which is 2 MiB on
    /// GPUs. It may synchronise the device.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where [`DeviceInfo::shared_memory`](gpustream_hal::DeviceInfo::shared_memory) is not set;
    /// [`ErrorKind::InvalidArgument`] for no bytes; [`ErrorKind::OutOfMemory`].
    #[track_caller]
    pub fn alloc_shared<T: Pod>(&self, len: usize) -> Result<Buffer<T>> {
        let operation = operation("alloc_shared");
        let alloc = || {
            inside::check_outside()?;
            self.check_shares()?;
            let bytes = byte_len::<T>(len)?;
            if bytes == 0 {
                return Err(invalid("memory of no bytes cannot be shared; ask for one element at least"));
            }
            Ok((self.raw().shared_alloc(bytes)?, bytes))
        };
        let (mapping, bytes) = alloc().map_err(|error| error.with_operation(operation))?;
        Ok(self.shared_buffer(mapping, None, bytes, len))
    }

    /// Maps memory that another process, or this one, has [exported](Buffer::export). Its contents count as written. The
    /// memory stays while the buffer does, also when the other process ends, in whatever way.
    ///
    /// The length is the bytes' as elements of `T`; the exporter's may be of another type. The buffer holds a file descriptor
    /// until it is dropped.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceMismatch`] for memory of another GPU or another backend; [`ErrorKind::InvalidArgument`] where the
    /// bytes are no whole number of elements, or the descriptor is not what the message says;
    /// [`ErrorKind::Unsupported`] where the driver does not share memory.
    ///
    /// # Safety
    /// The library orders the uses of this buffer among each other. It knows nothing of those through other buffers of the
    /// same memory, in any process. Each of these uses is in an order with each of this buffer's that it conflicts with: two
    /// conflict if they touch the same bytes and one writes. [`Stream::synchronize`](crate::Stream::synchronize) and a message
    /// to the other process afterwards make such an order. This holds for the processes that the exporter sends the memory to,
    /// which have to be trusted in that.
    #[track_caller]
    pub unsafe fn import<T: Pod>(&self, export: &Export) -> Result<Buffer<T>> {
        let operation = operation("import");
        let import = || {
            inside::check_outside()?;
            self.check_shares()?;
            let Header { bytes, uuid, .. } = export.header;
            let ours = self.info().backend;
            if export.header.backend != short_name(ours) {
                let theirs = export.header.backend();
                let message =
                    format!("the memory is of the backend {theirs}, and {self:?} of {ours}; import it there");
                return Err(Error::new(ErrorKind::DeviceMismatch, message));
            }
            if uuid != self.raw().uuid()? {
                let message = format!(
                    "the memory is of another device than {self:?}; import it to that device, by whichever number this \
                     process knows it"
                );
                return Err(Error::new(ErrorKind::DeviceMismatch, message));
            }
            let element = size_of::<T>();
            let bytes = usize::try_from(bytes)
                .map_err(|_| invalid(format!("importing {bytes} bytes of memory: too many")))?;
            if element == 0 || !bytes.is_multiple_of(element) {
                return Err(invalid(format!(
                    "importing {bytes} bytes of memory as elements of {element} bytes: not a whole number of them"
                )));
            }
            let descriptor = copy_of(&export.descriptor)?;
            Ok((self.raw().shared_import(descriptor.as_fd(), bytes)?, descriptor, bytes))
        };
        let (mapping, descriptor, bytes) = import().map_err(|error| error.with_operation(operation))?;
        let buffer = self.shared_buffer(mapping, Some(descriptor), bytes, bytes / size_of::<T>());
        buffer.set_written(bytes);
        Ok(buffer)
    }

    fn check_shares(&self) -> Result<()> {
        if self.info().shared_memory {
            return Ok(());
        }
        let message =
            format!("{self:?} cannot share memory with other processes; copy through the host instead");
        Err(Error::new(ErrorKind::Unsupported, message))
    }

    fn shared_buffer<T: Pod>(
        &self,
        mapping: SharedMapping,
        imported: Option<OwnedFd>,
        bytes: usize,
        len: usize,
    ) -> Buffer<T> {
        let address = mapping.address;
        let mapping = Arc::new(Mapping { device: self.raw().clone(), raw: Some(mapping), imported });
        // SAFETY: the owner keeps the mapping, which is new; `import` asks its caller for the rest.
        let block = unsafe { self.0.pools.foreign(ForeignOwner::new(mapping.clone()), address, bytes) };
        Buffer::new(Owned::shared(self, block, mapping), len)
    }
}

impl<T: Pod> Buffer<T> {
    /// Makes a handle of the memory for other processes. The memory must be from [`Device::alloc_shared`] or
    /// [`Device::import`]. All of its contents count as written then, since another process may write them.
    ///
    /// ```
    /// use std::os::unix::net::UnixStream;
    /// use gpustream::{Buffer, Device, Export};
    /// # let device = Device::open("cpu")?;
    /// # let stream = device.stream()?;
    /// # let (ours, theirs) = UnixStream::pair().unwrap();
    /// // One process:
    /// let mut frame = device.alloc_shared::<f32>(1000)?;
    /// stream.fill(&mut frame, 2.0)?;
    /// stream.synchronize()?;
    /// frame.export()?.send(&ours)?;
    ///
    /// // The other one:
    /// let export = Export::receive(&theirs)?;
    /// // SAFETY: the sender does not use the memory any more.
    /// let frame: Buffer<f32> = unsafe { device.import(&export) }?;
    /// assert_eq!(stream.download(&frame)?[999], 2.0);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for memory of another kind; [`ErrorKind::Driver`] or [`ErrorKind::External`] where the
    /// process has no room for another file descriptor.
    #[track_caller]
    pub fn export(&self) -> Result<Export> {
        let operation = operation("export");
        let export = || {
            inside::check_outside()?;
            let (mapping, device) = self.mapping();
            let Some((mapping, raw)) = mapping.and_then(|mapping| Some((mapping, mapping.raw.as_ref()?)))
            else {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "this memory is of the pool or of another library, and cannot be exported; allocate it with \
                     `Device::alloc_shared`",
                ));
            };
            let uuid = mapping.device.uuid()?;
            let descriptor = match &mapping.imported {
                Some(descriptor) => copy_of(descriptor)?,
                // SAFETY: the buffer holds the mapping.
                None => unsafe { mapping.device.shared_export(raw) }?,
            };
            let backend = short_name(device.info().backend);
            let bytes = self.len() * size_of::<T>();
            // Another process may write from now on.
            self.set_written(bytes);
            Ok(Export { descriptor, header: Header { backend, uuid, bytes: bytes as u64 } })
        };
        export().map_err(|error: Error| error.with_operation(operation))
    }
}

/// Returns the beginning of a backend's name, filled up with zeros.
fn short_name(backend: &str) -> [u8; 8] {
    let mut name = [0; 8];
    for (to, from) in name.iter_mut().zip(backend.bytes()) {
        *to = from;
    }
    name
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}

/// Returns another descriptor of the same memory.
fn copy_of(descriptor: &OwnedFd) -> Result<OwnedFd> {
    descriptor.try_clone().map_err(|error| external("copying the file descriptor of shared memory", error))
}

fn external(what: &str, error: io::Error) -> Error {
    Error::external(error).with_context(what)
}
