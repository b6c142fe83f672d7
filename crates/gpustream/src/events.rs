//! The library's notices as events of the crate `tracing`.

use gpustream_core::events;
use gpustream_hal::notice::{self, Level, Listener, Notice};
use tracing::dispatcher::{self, Dispatch};
use tracing::field::debug;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::NoSubscriber;

/// How the targets of our events begin, so that [`TraceLayer`](crate::TraceLayer) can tell them from yours.
pub(crate) const TARGETS: &str = "gpustream::";

/// Turns the library's notices into events from now on.
pub(crate) fn listen() {
    notice::listen(Listener { wants, now, later });
}

/// Returns true if a subscriber wants events of this level. This only reads one number, which subscribers have set.
fn wants(level: Level) -> bool {
    let level = match level {
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
    };
    level <= LevelFilter::current()
}

/// Returns this thread's subscriber. If the thread is just telling a subscriber something, there is none, so what the
/// subscriber makes the library do is not told. An event there would not only be lost: if it were the first of its kind,
/// `tracing` would remember that the kind is not wanted.
fn subscriber() -> Option<Dispatch> {
    Some(dispatcher::get_default(Dispatch::clone)).filter(|subscriber| !subscriber.is::<NoSubscriber>())
}

fn now(notice: &Notice) {
    if subscriber().is_some() {
        emit(notice);
    }
}

/// We take this thread's subscriber along, because a program may have several.
fn later(notice: Notice) {
    if let Some(subscriber) = subscriber() {
        events::tell(Box::new(move || dispatcher::with_default(&subscriber, || emit(&notice))));
    }
}

fn emit(notice: &Notice) {
    match notice {
        Notice::Opened { device, name, arch, driver, uuid, pci, library, why } => tracing::info!(
            target: "gpustream::device",
            device,
            name,
            arch,
            driver,
            uuid,
            pci,
            library = library.as_ref().map(|(file, _)| display(file.display())),
            library_found_by = library.as_ref().map(|(_, found_by)| found_by),
            why,
            "device opened"
        ),
        Notice::PassedOver { backend, why } => {
            tracing::info!(target: "gpustream::device", backend, why, "backend passed over");
        }
        Notice::CacheMiss { source, arch, folder } => tracing::debug!(
            target: "gpustream::compile",
            source,
            arch,
            folder = folder.as_ref().map(|folder| display(folder.display())),
            "no image in the cache"
        ),
        Notice::Compiled { source, arch, compiler, took } => {
            let took = debug(took);
            tracing::info!(target: "gpustream::compile", source, arch, compiler, took, "compiled at run time");
        }
        Notice::PoolGrew { device, memory, bytes, reserved, location } => tracing::debug!(
            target: "gpustream::pool",
            device,
            memory,
            bytes,
            reserved,
            location = %location,
            "the pool took memory from the driver"
        ),
        Notice::Fault { device, message } => {
            tracing::error!(target: "gpustream::fault", device, error = message, "device lost");
        }
        Notice::Serialises { location, why } => {
            tracing::warn!(target: "gpustream::lint", location = %location, why, "operations wait for each other");
        }
        // A kind that only a newer backend knows.
        other => tracing::info!(target: "gpustream::notice", notice = ?other),
    }
}
