//! One operation of a device, as a value.
//!
//! [`Work::kind`] says what kind of operation it is, and [`Work::is_node`] whether a graph can have it. Neither looks at what
//! the operation's pointers point to. If you add a kind of operation, add a variant, answer these two, and call the driver in
//! [`Work::enqueue`]. If the operation can be a node, also call the driver in each backend's `graph.rs`, and teach the core's
//! `replay/sequence.rs` to compare it, because otherwise it cuts every replayed step.

use std::ffi::c_void;

use crate::{
    Copy1d, Copy3d, CopyDirection, Fill, HostFn, HostPartFn, LaunchConfig, RawBuffer, RawFunction, WaitValue,
};

/// An operation that is one driver call. It does not say yet where it goes: into a stream ([`enqueue`](Self::enqueue)), into
/// a new node of a graph ([`GraphNode::Work`](crate::GraphNode)), or into an existing node
/// ([`graph_set_node`](crate::Graphs::graph_set_node)).
///
/// Each variant names the method that does the same. That method's rules hold for the variant's pointers and addresses.
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
    /// [`Buffers::copy_to_device`](crate::Buffers::copy_to_device), [`copy_to_host`](crate::Buffers::copy_to_host) or
    /// [`copy_on_device`](crate::Buffers::copy_on_device), depending on source and destination. In a graph, host memory must
    /// be pinned.
    Copy(Copy1d),
    /// [`Buffers::copy_inline`](crate::Buffers::copy_inline). Cannot be a node of a graph.
    CopyInline {
        /// Destination.
        dst: RawBuffer,
        /// Source, read during the call.
        src: *const u8,
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
    Fill(Fill),
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

/// The kind of an operation, or of what kept a device busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkKind {
    /// A kernel.
    Kernel {
        /// Blocks.
        grid: [u32; 3],
        /// Threads of a block.
        block: [u32; 3],
    },
    /// A copy.
    Copy {
        /// Between which kinds of memory.
        direction: CopyDirection,
        /// Length.
        bytes: u64,
    },
    /// A fill.
    Fill {
        /// Length.
        bytes: u64,
    },
    /// A function of the host.
    Host,
    /// Anything else.
    Other,
}

impl Work<'_> {
    /// Returns true if the operation is a kernel whose blocks wait for each other.
    #[inline]
    pub const fn is_cooperative(&self) -> bool {
        matches!(self, Self::Kernel { config, .. } if config.cooperative)
    }

    /// Returns the kind of the operation.
    pub fn kind(&self) -> WorkKind {
        let copy = |direction, bytes: usize| WorkKind::Copy { direction, bytes: bytes as u64 };
        match *self {
            Self::Kernel { config, .. } => WorkKind::Kernel { grid: config.grid, block: config.block },
            Self::Copy(it) => copy(it.direction(), it.bytes),
            Self::CopyInline { bytes, .. } => copy(CopyDirection::ToDevice, bytes),
            Self::CopyFromPeer { bytes, .. } => copy(CopyDirection::FromPeer, bytes),
            Self::Copy3d(it) => copy(CopyDirection::between(it.dst, it.src), it.width * it.height * it.depth),
            Self::Fill(fill) => WorkKind::Fill { bytes: (fill.pattern.width() * fill.count) as u64 },
            Self::Host { .. } | Self::HostParts { .. } => WorkKind::Host,
            Self::Prefetch { .. } | Self::WaitValue { .. } | Self::WriteValue { .. } => WorkKind::Other,
        }
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
