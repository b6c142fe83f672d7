//! One operation of a device, as a value.

use std::ffi::c_void;

use crate::{
    Copy3d, FillPattern, HostFn, HostPartFn, HostPtr, LaunchConfig, RawBuffer, RawFunction, WaitValue,
};

/// An operation that is one driver call. It does not know its place yet: that can be a stream ([`enqueue`](Self::enqueue)),
/// a new node of a graph ([`GraphNode::Work`](crate::GraphNode)), or an existing node
/// ([`graph_set_node`](crate::Graphs::graph_set_node)).
///
/// Each variant names the method that does the same, and its pointers and addresses must be as that method says.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Work<'a> {
    /// [`Launch::launch`](crate::Launch::launch).
    Kernel {
        /// The kernel.
        function: RawFunction,
        /// The shape of the launch.
        config: &'a LaunchConfig,
        /// Pointers to the arguments, read before the call returns.
        args: &'a [*mut c_void],
    },
    /// [`Buffers::copy_to_device`](crate::Buffers::copy_to_device); in a graph `src` is pinned.
    CopyToDevice {
        /// Destination.
        dst: RawBuffer,
        /// Source.
        src: *const u8,
        /// Length.
        bytes: usize,
    },
    /// [`Buffers::copy_inline`](crate::Buffers::copy_inline). Cannot be a node of a graph.
    CopyInline {
        /// Destination.
        dst: RawBuffer,
        /// Source, read during the call.
        src: *const u8,
        /// Length.
        bytes: usize,
    },
    /// [`Buffers::copy_to_host`](crate::Buffers::copy_to_host); in a graph `dst` is pinned.
    CopyToHost {
        /// Destination.
        dst: HostPtr,
        /// Source.
        src: RawBuffer,
        /// Length.
        bytes: usize,
    },
    /// [`Buffers::copy_on_device`](crate::Buffers::copy_on_device).
    CopyOnDevice {
        /// Destination.
        dst: RawBuffer,
        /// Source.
        src: RawBuffer,
        /// Length.
        bytes: usize,
    },
    /// [`Buffers::copy_from_peer`](crate::Buffers::copy_from_peer). Cannot be a node of a graph.
    CopyFromPeer {
        /// Destination, on this device.
        dst: RawBuffer,
        /// Source, on the other device.
        src: RawBuffer,
        /// The other device.
        src_ordinal: usize,
        /// Length.
        bytes: usize,
    },
    /// [`Buffers::copy_3d`](crate::Buffers::copy_3d).
    Copy3d(&'a Copy3d),
    /// [`Buffers::fill`](crate::Buffers::fill).
    Fill {
        /// Destination.
        dst: RawBuffer,
        /// Value.
        pattern: FillPattern,
        /// Number of elements.
        count: usize,
    },
    /// [`Streams::stream_host_fn`](crate::Streams::stream_host_fn). In a graph, each launch calls the function once.
    Host {
        /// Function to call.
        function: HostFn,
        /// The argument of the function.
        data: *mut c_void,
    },
    /// [`Streams::stream_host_parts`](crate::Streams::stream_host_parts). In a graph the function is called once for each part
    /// in each launch.
    HostParts {
        /// Function to call.
        function: HostPartFn,
        /// The first argument of the function.
        data: *mut c_void,
        /// Number of parts, at least one.
        parts: u32,
    },
    /// [`Buffers::managed_prefetch`](crate::Buffers::managed_prefetch). Cannot be a node of a graph.
    Prefetch {
        /// Managed memory.
        buffer: RawBuffer,
        /// Length.
        bytes: usize,
        /// True if the memory moves to the device, false if it moves to the host.
        to_device: bool,
    },
    /// [`Streams::stream_wait_value32`](crate::Streams::stream_wait_value32). Cannot be a node of a graph or part of a
    /// capture.
    WaitValue {
        /// The word.
        address: RawBuffer,
        /// Which values of the word end the wait.
        until: WaitValue,
    },
    /// [`Streams::stream_write_value32`](crate::Streams::stream_write_value32). Cannot be a node of a graph or part of a
    /// capture.
    WriteValue {
        /// The word.
        address: RawBuffer,
        /// The value to write.
        value: u32,
    },
}

impl Work<'_> {
    /// Returns true if the operation is a kernel whose blocks wait for each other.
    #[inline]
    pub const fn is_cooperative(&self) -> bool {
        matches!(self, Self::Kernel { config, .. } if config.cooperative)
    }

    /// Returns true if the operation can be a node of a graph.
    #[inline]
    pub const fn is_node(&self) -> bool {
        !matches!(
            self,
            Self::CopyInline { .. }
                | Self::CopyFromPeer { .. }
                | Self::Prefetch { .. }
                | Self::WaitValue { .. }
                | Self::WriteValue { .. }
        )
    }
}
