//! Another library's calls, recorded once so that we can run their work again without making them.

use std::sync::{Arc, OnceLock};

use gpustream_hal::{self as hal, RawGraph, RawStream, Result, StreamOptions};

use super::{OwnedExec, OwnedGraph};
use crate::reentrancy::run_external;

/// The work that another library's calls enqueued, as a graph.
pub struct RecordedCalls {
    graph: OwnedGraph,
    /// Made when the work first runs by itself, because usually it is part of another graph.
    exec: OnceLock<OwnedExec>,
}

/// A driver's stream of our own that is being captured.
struct CapturedStream<'a> {
    device: &'a Arc<dyn hal::Device>,
    raw: RawStream,
    is_capturing: bool,
}

impl RecordedCalls {
    /// Makes the calls on a captured stream of their own, and keeps what they enqueue. If the driver cannot begin a capture,
    /// makes no call and returns `None`.
    ///
    /// # Errors
    /// Those of `calls`; the driver's failure, for example because a call cannot be captured.
    pub(crate) fn record(
        device: &Arc<dyn hal::Device>,
        calls: &mut dyn FnMut(RawStream) -> Result<()>,
    ) -> Result<Option<Self>> {
        let Ok(mut stream) = CapturedStream::begin(device) else { return Ok(None) };
        run_external(|| calls(stream.raw))?;
        let graph = stream.end().map_err(|error| {
            error.with_context(
                "recording another library's calls (if a graph cannot have them, use `Stream::external`)",
            )
        })?;
        Ok(Some(Self { graph, exec: OnceLock::new() }))
    }

    pub(crate) fn graph(&self) -> RawGraph {
        self.graph.raw
    }

    /// Enqueues the work.
    ///
    /// # Errors
    /// Those of instantiating and launching a graph.
    ///
    /// # Safety
    /// The stream is alive and of the same device. Everything that the work uses stays alive until it is done, and so does
    /// this value.
    pub(crate) unsafe fn launch(&self, stream: RawStream) -> Result<()> {
        let exec = if let Some(exec) = self.exec.get() {
            exec
        } else {
            let exec = self.graph.instantiate()?;
            self.exec.get_or_init(|| exec)
        };
        // SAFETY: the executable is alive; the rest is this function's contract.
        unsafe { exec.device.graph_launch(exec.raw, stream) }
    }
}

impl<'a> CapturedStream<'a> {
    fn begin(device: &'a Arc<dyn hal::Device>) -> Result<Self> {
        let raw = device.stream_create(StreamOptions::default())?;
        let mut stream = Self { device, raw, is_capturing: false };
        device.enter()?;
        // SAFETY: the stream is alive, and has just been made.
        unsafe { device.capture_begin(raw) }?;
        stream.is_capturing = true;
        Ok(stream)
    }

    fn end(&mut self) -> Result<OwnedGraph> {
        self.is_capturing = false;
        // SAFETY: this thread has begun the capture, which has not ended.
        match unsafe { self.device.capture_end(self.raw) } {
            Ok(raw) => Ok(OwnedGraph { raw, device: self.device.clone() }),
            Err(error) => {
                // SAFETY: the capture was begun and ended on this thread, without success.
                let _ = unsafe { self.device.capture_abandon(self.raw) };
                Err(error)
            }
        }
    }
}

impl Drop for CapturedStream<'_> {
    /// Ends the capture if the calls failed or panicked.
    fn drop(&mut self) {
        if self.is_capturing {
            let _ = self.end();
        }
        // SAFETY: nothing runs in the stream, because everything that it was given was captured.
        let _ = unsafe { self.device.stream_destroy(self.raw) };
    }
}
