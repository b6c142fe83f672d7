//! Watchers of graphs: how a library learns that a graph with its work in it is launched.

use std::fmt;
use std::sync::Arc;

use gpustream_core::operation::call_site;
use gpustream_core::record::Contents;
use gpustream_core::stream::StreamWatcher;
use gpustream_hal::Result;

use crate::external::Failures;
use crate::stream::Stream;

/// Tells your library of each launch of a graph that has its work in it. [`Stream::watch_launches`] makes a graph keep a
/// watcher as long as the graph lives.
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
/// A `GraphWatcher` is `Send` and `Sync`. A graph drops its watcher once the graph itself is dropped and its runs are done.
pub struct GraphWatcher {
    before_launch: Box<dyn Fn() -> Result<()> + Send + Sync>,
    launched: Box<dyn Fn(Arc<StreamWatcher>, Failures) + Send + Sync>,
}

impl GraphWatcher {
    /// Makes a watcher from two closures, which run before and after each launch, on the launching thread.
    ///
    /// If `before_launch` returns an error, the graph is not launched, and the launch returns that error. `launched` gets a
    /// [`StreamWatcher`] for the run, and the place to report its [`Failures`]. We hold no lock while they run, so they may
    /// read what the graph touches, and even launch. If `before_launch` keeps a guard that conflicts with the graph, the launch
    /// returns [`ErrorKind::HostBorrowed`](crate::ErrorKind::HostBorrowed), as with any guard.
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
    /// Makes the graph that is being recorded keep a watcher. The watcher is told of each launch of this graph, and of each
    /// launch of a graph that this one becomes part of. If you call this several times with one watcher, it is still kept and
    /// told once. The graph drops it after the driver's graph, once the last run is done.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if the stream is not being recorded.
    #[track_caller]
    pub fn watch_launches(&self, watcher: &Arc<GraphWatcher>) -> Result<()> {
        let entry = self.enter(call_site("watch_launches"))?;
        entry.named(entry.keep_watcher(watcher.clone()))
    }

    /// Launches a graph that has watchers. `launch` makes the launch itself.
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
