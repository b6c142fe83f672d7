//! Device memory that several processes can map.

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

/// A mapping of memory that other processes may map too. It is unmapped when this is dropped.
pub(crate) struct Mapping {
    device: Arc<dyn HalDevice>,
    raw: SharedMapping,
    /// The descriptor that imported memory came from. We keep it because CUDA cannot export memory that it has imported.
    imported: Option<OwnedFd>,
    /// What the memory takes from the device's limit, if this process allocated it.
    share: Option<BudgetShare>,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let device = self.device.clone();
        let SharedMapping { address, mapped, handle } = self.raw;
        let share = self.share.take();
        reentrancy::outside(move || {
            let mapping = SharedMapping { address, mapped, handle };
            // SAFETY: the block's owner is dropped once its last use is known to be done, and a buffer that names the mapping
            // is dropped after its own uses.
            let _ = unsafe { device.shared_unmap(mapping) };
            drop(share);
        });
    }
}

impl Device {
    /// Allocates memory that you can share with other processes through [`Buffer::export`] (`cuMemCreate`, `hipMemCreate`, a
    /// sealed `memfd`). Its contents are unspecified. Otherwise the buffer is like any other.
    ///
    /// This is far slower than allocating from the pool, and sizes are rounded up to what the driver shares at once, which is 2
    /// MiB on GPUs. May block until the device is idle, because drivers do, and because we wait for freed memory if there is no
    /// room.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if [`DeviceFeatures::shared_memory`](gpustream_hal::DeviceFeatures::shared_memory) is not
    /// set; [`ErrorKind::InvalidArgument`] if there are no bytes; [`ErrorKind::OutOfMemory`].
    #[track_caller]
    pub fn alloc_shared<T: Plain>(&self, len: usize) -> Result<Buffer<T>> {
        named(call_site("alloc_shared"), || {
            reentrancy::check_outside()?;
            self.check_shares()?;
            let bytes = byte_len::<T>(len)?;
            if bytes == 0 {
                return Err(invalid("0 bytes of memory cannot be shared; ask for at least one element"));
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

    /// Maps memory that another process (or this one) has [exported](Buffer::export). Its contents count as written. The memory
    /// lives as long as the buffer, even if the other process ends or is killed.
    ///
    /// The length is however many elements of `T` the bytes are, and the exporter's elements may have another type. The buffer
    /// holds a file descriptor until you drop it.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceMismatch`] if the memory belongs to another GPU or another backend; [`ErrorKind::InvalidArgument`] if
    /// the bytes are not a whole number of elements, or if the descriptor is not what the message says;
    /// [`ErrorKind::Unsupported`] if the driver cannot share memory.
    ///
    /// # Safety
    /// We order the uses of this buffer. But we know nothing of the uses of the same memory through other buffers, in any
    /// process. So you must order each of those with each use of this buffer that it conflicts with, which means that both
    /// touch the same bytes and one writes. You can do that in two ways:
    ///
    /// * Call [`Stream::synchronize`](crate::Stream::synchronize), and then send the other process a message.
    /// * Record a [`SharedEvent`](crate::SharedEvent) after the one use, send a message that says so, and make the other use
    ///   wait for it.
    ///
    /// You must trust all processes that the exporter sends the memory to that they do the same.
    #[track_caller]
    pub unsafe fn import<T: Plain>(&self, export: &Export) -> Result<Buffer<T>> {
        named(call_site("import"), || {
            reentrancy::check_outside()?;
            self.check_shares()?;
            let Content::Memory { backend, uuid, bytes } = export.content else {
                return Err(invalid(
                    "the export holds an event, not memory; import it with `Device::import_event`",
                ));
            };
            let ours = self.info().backend;
            let elsewhere = |message: String| Err(Error::new(ErrorKind::DeviceMismatch, message));
            if backend != BackendName::new(ours.as_str()) {
                return elsewhere(format!(
                    "the memory belongs to the backend {backend}, and {} to {ours}; import it on a device of {backend}",
                    self.place()
                ));
            }
            if uuid != self.raw().uuid()? {
                return elsewhere(format!(
                    "the memory belongs to another device than {}; import it on that device, which may have another number in \
                     this process",
                    self.place()
                ));
            }
            let element = size_of::<T>();
            let bytes = usize::try_from(bytes).map_err(|_| {
                invalid(format!("the export has {bytes} bytes, more than this process can address"))
            })?;
            if element == 0 || !bytes.is_multiple_of(element) {
                return Err(invalid(format!(
                    "the export has {bytes} bytes, which is not a whole number of elements of {element} bytes; import it as \
                     elements whose size divides it"
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
        // SAFETY: the owner keeps the mapping, which is new. `import` asks its caller for the rest.
        let block = unsafe { self.0.pools.foreign(ForeignOwner::ours(mapping.clone()), address, bytes) };
        Ok(Buffer::new(Owned::shared(self, block, mapping), len))
    }
}

impl<T: Plain> Buffer<T> {
    /// Makes a handle of the memory that you can send to other processes. The memory must come from [`Device::alloc_shared`] or
    /// [`Device::import`]. From then on all its contents count as written, because another process may write them.
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
    /// [`ErrorKind::Unsupported`] if it is other memory; [`ErrorKind::Driver`] or [`ErrorKind::External`] if the process cannot
    /// open another file descriptor.
    #[track_caller]
    pub fn export(&self) -> Result<Export> {
        named(call_site("export"), || {
            reentrancy::check_outside()?;
            let (mapping, device) = self.mapping();
            let Some(mapping) = mapping else {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "this memory comes from the pool or from another library, so it cannot be exported; allocate it with \
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
