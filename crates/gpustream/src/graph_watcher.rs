//! Watchers, which look after another library's work in graphs.

use std::fmt;
use std::sync::Arc;

use gpustream_core::operation::call_site;
use gpustream_core::record::Contents;
use gpustream_core::stream::StreamWatcher;
use gpustream_hal::Result;

use crate::external::Failures;
use crate::stream::Stream;

/// A watcher, which looks after another library's work in graphs: [`Stream::watch_launches`] has a graph keep it, for
/// as long as the graph lives.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use gpustream::interop::{GraphWatcher, StreamWatcher};
/// # let device = gpustream::Device::open("cpu")?;
/// # let stream = device.stream()?;
/// let runs = Arc::new(Mutex::new(Vec::<Arc<StreamWatcher>>::new()));
/// let watcher = Arc::new(GraphWatcher::new(|| Ok(()), {
///     let runs = runs.clone();
///     move |run, _failures| runs.lock().unwrap().push(run)
/// }));
/// let graph = stream.capture(|s| s.watch_launches(&watcher))?;
/// graph.launch(&stream)?;
///
/// stream.synchronize()?;
/// assert!(runs.lock().unwrap()[0].is_done()?);
/// drop(graph);
/// assert_eq!(Arc::strong_count(&watcher), 1);
/// # Ok::<(), gpustream::Error>(())
/// ```
///
/// A `GraphWatcher` is `Send` and `Sync`. A graph drops its watcher when the graph is dropped and its runs are done.
pub struct GraphWatcher {
    before_launch: Box<dyn Fn() -> Result<()> + Send + Sync>,
    launched: Box<dyn Fn(Arc<StreamWatcher>, Failures) + Send + Sync>,
}

impl GraphWatcher {
    /// Creates a watcher, by what it does before and after each launch, on the launching thread.
    ///
    /// Where `before_launch` returns an error, the graph is not launched, and the launch returns that. `launched` is given the
    /// run, as a [`StreamWatcher`] of the stream, and the place for its [`Failures`]. Nothing is locked while either runs: they may
    /// read what the graph touches, and launch. A guard that `before_launch` keeps makes the launch an
    /// [`ErrorKind::HostBorrowed`](crate::ErrorKind::HostBorrowed) if it conflicts, as any guard does.
    pub fn new(
        before_launch: impl Fn() -> Result<()> + Send + Sync + 'static,
        launched: impl Fn(Arc<StreamWatcher>, Failures) + Send + Sync + 'static,
    ) -> Self {
        Self { before_launch: Box::new(before_launch), launched: Box::new(launched) }
    }
}

impl fmt::Debug for GraphWatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraphWatcher").finish_non_exhaustive()
    }
}

impl Stream {
    /// Has the graph that is being recorded keep a watcher, which is told of each of its launches, and of those of graphs that
    /// this one becomes part of. Given several times, it is kept and told once. The graph drops it after the driver's graph, once
    /// its last run is done.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) where nothing is recorded.
    #[track_caller]
    pub fn watch_launches(&self, watcher: &Arc<GraphWatcher>) -> Result<()> {
        let entry = self.enter(call_site("watch_launches"))?;
        entry.named(entry.keep_watcher(watcher.clone()))
    }

    /// Launches a graph with watchers by `launch`.
    #[cold]
    pub(crate) fn launch_watched(
        &self,
        contents: &Contents,
        launch: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let watchers: Vec<_> = contents.kept::<GraphWatcher>().collect();
        watchers.iter().try_for_each(|watcher| (watcher.before_launch)())?;
        let run = Arc::new(self.core.watched(launch)?);
        for watcher in watchers {
            (watcher.launched)(run.clone(), self.failures());
        }
        Ok(())
    }
}
