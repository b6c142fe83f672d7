//! Device memory that several processes map.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use gpustream_core::deferred_drop::ForeignOwner;
use gpustream_core::memory::{BudgetShare, byte_len};
use gpustream_core::operation::{call_site, named};
use gpustream_core::reentrancy;
use gpustream_hal::{Device as HalDevice, Error, ErrorKind, Result, SharedMapping};

use crate::buffer::{Buffer, Owned};
use crate::device::Device;
use crate::export::{BackendName, Content, Export, copy_of, invalid};
use crate::plain::Plain;
use crate::view::check_alignment;

/// A mapping of memory that other processes may map too, which ends with the value.
pub(crate) struct Mapping {
    device: Arc<dyn HalDevice>,
    raw: SharedMapping,
    /// The descriptor that imported memory came from. CUDA exports no memory that it has imported.
    imported: Option<OwnedFd>,
    /// What the memory takes of the device's limit, if this process allocated it.
    share: Option<BudgetShare>,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let device = self.device.clone();
        let SharedMapping { address, mapped, handle } = self.raw;
        let share = self.share.take();
        reentrancy::outside(move || {
            let mapping = SharedMapping { address, mapped, handle };
            // SAFETY: the block's owner goes once its last use is known to be done, and a buffer that names the mapping
            // goes after its own uses.
            let _ = unsafe { device.shared_unmap(mapping) };
            drop(share);
        });
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
    /// [`ErrorKind::Unsupported`] where [`DeviceFeatures::shared_memory`](gpustream_hal::DeviceFeatures::shared_memory) is not set;
    /// [`ErrorKind::InvalidArgument`] for no bytes; [`ErrorKind::OutOfMemory`].
    #[track_caller]
    pub fn alloc_shared<T: Plain>(&self, len: usize) -> Result<Buffer<T>> {
        named(call_site("alloc_shared"), || {
            reentrancy::check_outside()?;
            self.check_shares()?;
            let bytes = byte_len::<T>(len)?;
            if bytes == 0 {
                return Err(invalid("memory of no bytes cannot be shared; ask for one element at least"));
            }
            let mapping = self.0.pools.with_room(&*self.0, bytes, |mut share| {
                let raw = self.raw().shared_alloc(bytes)?;
                let grown = share.grow(raw.mapped);
                let mapping = Mapping { device: self.raw().clone(), raw, imported: None, share: Some(share) };
                grown.map(|()| mapping)
            })?;
            self.shared_buffer(mapping, bytes, len)
        })
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
    /// conflict if they touch the same bytes and one writes. Two things make such an order:
    /// [`Stream::synchronize`](crate::Stream::synchronize) and a message to the other process afterwards; and a
    /// [`SharedEvent`](crate::SharedEvent), recorded behind the one use, a message that says so, and a wait in front of the
    /// other use. This holds for the processes that the exporter sends the memory to,
    /// which have to be trusted in that.
    #[track_caller]
    pub unsafe fn import<T: Plain>(&self, export: &Export) -> Result<Buffer<T>> {
        named(call_site("import"), || {
            reentrancy::check_outside()?;
            self.check_shares()?;
            let Content::Memory { backend, uuid, bytes } = export.content else {
                return Err(invalid("the export is of an event; take it with `Device::import_event`"));
            };
            let ours = self.info().backend;
            let elsewhere = |message: String| Err(Error::new(ErrorKind::DeviceMismatch, message));
            if backend != BackendName::new(ours.as_str()) {
                return elsewhere(format!(
                    "the memory is of the backend {backend}, and {} of {ours}; import it there",
                    self.place()
                ));
            }
            if uuid != self.raw().uuid()? {
                return elsewhere(format!(
                    "the memory is of another device than {}; import it to that device, by whichever number this \
                     process knows it",
                    self.place()
                ));
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
            let raw = self.raw().shared_import(descriptor.as_fd(), bytes)?;
            let mapping =
                Mapping { device: self.raw().clone(), raw, imported: Some(descriptor), share: None };
            let buffer = self.shared_buffer(mapping, bytes, bytes / element)?;
            buffer.set_written(bytes);
            Ok(buffer)
        })
    }

    fn check_shares(&self) -> Result<()> {
        if self.info().features.shared_memory {
            return Ok(());
        }
        let message = format!(
            "{} cannot share memory with other processes; copy through the host instead",
            self.place()
        );
        Err(Error::new(ErrorKind::Unsupported, message))
    }

    fn shared_buffer<T: Plain>(&self, mapping: Mapping, bytes: usize, len: usize) -> Result<Buffer<T>> {
        let address = mapping.raw.address;
        check_alignment::<T>(address.0)?;
        let mapping = Arc::new(mapping);
        // SAFETY: the owner keeps the mapping, which is new; `import` asks its caller for the rest.
        let block = unsafe { self.0.pools.foreign(ForeignOwner::ours(mapping.clone()), address, bytes) };
        Ok(Buffer::new(Owned::shared(self, block, mapping), len))
    }
}

impl<T: Plain> Buffer<T> {
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
        named(call_site("export"), || {
            reentrancy::check_outside()?;
            let (mapping, device) = self.mapping();
            let Some(mapping) = mapping else {
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
                None => unsafe { mapping.device.shared_export(&mapping.raw) }?,
            };
            let backend = BackendName::new(device.info().backend.as_str());
            let bytes = self.len() * size_of::<T>();
            // Another process may write from now on.
            self.set_written(bytes);
            Ok(Export { descriptor, content: Content::Memory { backend, uuid, bytes: bytes as u64 } })
        })
    }
}
