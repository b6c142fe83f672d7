//! What all handles of one opened device share, and its end.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gpustream_hal::{self as hal, DeviceInfo, Result, WaitPolicy};

use crate::device_options::DeviceOptions;
use crate::environment::Environment;
use crate::inside;
use crate::memory::Kind;
use crate::operation::Rules;
use crate::pool::{Pools, Users};
use crate::queue::{ContextHold, StreamCore, StreamTable};
use crate::staging::Staging;
use crate::sync::{Mutex, lock};
use crate::track::{Point, StreamId};

/// Something whose last handle is gone, and the ends of all streams at that moment: once those are reached
/// nothing uses it any more.
struct Parked {
    /// Only ever dropped.
    _what: Box<dyn Send>,
    until: Vec<Point>,
    device: Arc<dyn hal::Device>,
    /// It may own anything, the last handles of its device among it.
    owns: bool,
}

/// Of all devices. What is parked may own the last handles of its own device: nobody would come back to that.
static PARKED: Mutex<Vec<Parked>> = Mutex::new(Vec::new());

/// What all handles of one opened device share.
pub(crate) struct DeviceCore {
    pub(crate) raw: Arc<dyn hal::Device>,
    pub(crate) info: DeviceInfo,
    pub(crate) rules: Rules,
    pub(crate) wait: WaitPolicy,
    pub(crate) streams: Arc<StreamTable>,
    pub(crate) pools: Arc<Pools>,
    pub(crate) staging: Staging,
    /// Other devices of the backend by ordinal, and whether this one reaches their memory.
    peers: Mutex<HashMap<usize, bool>>,
    /// Whether streams of other devices have used this one's memory.
    visited: AtomicBool,
}

impl DeviceCore {
    pub(crate) fn new(raw: Arc<dyn hal::Device>, options: DeviceOptions, environment: Environment) -> Self {
        let streams = StreamTable::shared().clone();
        let rules = Rules { tracking: options.tracking, blocking: environment.blocking };
        Self {
            info: raw.info().clone(),
            rules,
            wait: options.wait,
            pools: Pools::new(raw.clone(), streams.clone(), options.memory.or(environment.pool), rules),
            streams,
            staging: Staging::new(options.staging.or(environment.staging)),
            peers: Mutex::default(),
            visited: AtomicBool::new(false),
            raw,
        }
    }

    #[inline]
    pub(crate) fn stream(&self, id: StreamId) -> Option<Arc<StreamCore>> {
        self.streams.get(id)
    }

    pub(crate) fn own_streams(&self) -> Vec<Arc<StreamCore>> {
        self.streams.filter(|stream| self.owns(stream))
    }

    /// Whether this device's streams may use memory of `other`: its own, or that of a device of the same backend
    /// which it can reach. Access is turned on at the first use.
    #[inline]
    pub(crate) fn reaches(&self, other: &Self, kind: Kind) -> Result<bool> {
        if std::ptr::eq(self, other) { Ok(true) } else { self.reaches_peer(other, kind) }
    }

    #[cold]
    fn reaches_peer(&self, other: &Self, kind: Kind) -> Result<bool> {
        inside::check_outside()?;
        if self.info.backend != other.info.backend {
            return Ok(false);
        }
        let ordinal = other.info.ordinal;
        // What the driver's pool gives is not among the memory that access is turned on for.
        if ordinal != self.info.ordinal && other.pools.is_of_driver(kind) {
            return Ok(false);
        }
        let mut peers = lock(&self.peers);
        let known = peers.get(&ordinal).copied();
        let reaches = if let Some(known) = known {
            known
        } else {
            // Opened twice, it is one device with one address space.
            let same = ordinal == self.info.ordinal;
            let reaches = same || self.raw.can_access_peer(ordinal)?;
            if reaches && !same {
                self.raw.enable_peer_access(ordinal)?;
            }
            peers.insert(ordinal, reaches);
            reaches
        };
        drop(peers);
        if reaches {
            other.visit();
        }
        Ok(reaches)
    }

    /// Those that may use what belongs to this device: its own, and the backend's others if any has.
    pub(crate) fn users(&self) -> Vec<Arc<StreamCore>> {
        let visited = self.visited.load(Ordering::Acquire);
        self.streams.filter(|stream| {
            self.owns(stream) || visited && stream.device.info().backend == self.info.backend
        })
    }

    /// Those of them that are other devices'.
    pub(crate) fn visitors(&self) -> Vec<Arc<StreamCore>> {
        let mut users = self.users();
        users.retain(|stream| !self.owns(stream));
        users
    }

    pub(crate) fn owns(&self, stream: &StreamCore) -> bool {
        Arc::ptr_eq(&stream.device, &self.raw)
    }

    /// A stream of another device uses memory of this one.
    pub(crate) fn visit(&self) {
        self.visited.store(true, Ordering::Release);
    }

    /// Asks the driver which streams are idle, and lets go of what waited for that.
    pub(crate) fn refresh(&self) {
        for stream in self.own_streams() {
            // An error says nothing about being done; whoever waits next is told.
            let _ = stream.poll();
        }
        self.sweep();
    }

    /// Finds out what is done, and gives the pool what the device's streams keep for their next short copies.
    pub(crate) fn take_back_kept(&self) {
        self.refresh();
        for stream in self.own_streams() {
            stream.short_path.take().for_each(|block| self.pools.release(block));
        }
    }

    pub(crate) fn sweep(&self) {
        if inside::is_inside() {
            return;
        }
        self.streams.sweep(&self.raw);
        self.look_after_others();
        let is_own = |parked: &Parked| Arc::ptr_eq(&parked.device, &self.raw);
        let done = |parked: &Parked| parked.until.iter().all(|&point| self.streams.known_done(point));
        let free: Vec<Parked> =
            lock(&PARKED).extract_if(.., |parked| (parked.owns || is_own(parked)) && done(parked)).collect();
        // Dropped with no lock held: a graph's closures may own anything. Where that is the last of another device, its end
        // waits for work that this very thread may be about to let go on.
        let (own, others): (Vec<_>, Vec<_>) = free.into_iter().partition(is_own);
        drop(own);
        if !others.is_empty() {
            inside::elsewhere(move || drop(others));
        }
    }

    /// Asks about the streams that other devices' parked closures wait for, if that may be all there is of the device.
    fn look_after_others(&self) {
        let others = |parked: &&Parked| parked.owns && !Arc::ptr_eq(&parked.device, &self.raw);
        let until: Vec<Point> =
            lock(&PARKED).iter().filter(others).flat_map(|parked| parked.until.iter().copied()).collect();
        for point in until {
            if let Some(stream) = self.stream(point.stream)
                && !stream.known_done(point.number)
            {
                // As in `refresh`.
                let _ = stream.poll();
            }
        }
    }

    /// Keeps `what` until everything submitted so far is done. Where it `owns` values of the program's, and with them
    /// perhaps this device, any other device lets go of it.
    pub(crate) fn park(&self, what: Box<dyn Send>, owns: bool) {
        // Streams of another device matter only if they have used what belongs to this one; nobody asks the driver
        // about them here, so this would wait for them without need.
        let until =
            self.users().into_iter().map(|stream| Point { stream: stream.id, number: stream.counted() });
        let until = until.collect();
        lock(&PARKED).push(Parked { _what: what, until, device: self.raw.clone(), owns });
        self.refresh();
    }

    pub(crate) fn synchronize(&self) -> Result<()> {
        inside::check_outside()?;
        let streams = self.own_streams();
        drop(ContextHold::for_wait(&*self.raw)?);
        // First by events, beside which others can capture; so the wait for the context is short. It tells of failures.
        for stream in &streams {
            let _ = stream.wait_end();
        }
        let context = ContextHold::for_wait(&*self.raw)?;
        let ends: Vec<u64> = streams.iter().map(|stream| stream.submitted()).collect();
        self.raw.synchronize()?;
        drop(context);
        streams.iter().zip(ends).for_each(|(stream, end)| stream.set_done(end));
        streams.iter().try_for_each(|stream| stream.panicked.report())
    }
}

impl Users for DeviceCore {
    /// Marks each stream's end too, so that the next look can tell more.
    fn look(&self) {
        for stream in self.users() {
            stream.poll_and_mark();
        }
        self.sweep();
    }

    fn are_known_idle(&self) -> bool {
        self.own_streams().iter().all(|stream| stream.known_done(stream.counted()))
    }

    /// Waits for each stream: a wait for the device would break what other threads capture.
    fn settle(&self) -> Result<()> {
        for stream in self.users() {
            match stream.wait_end() {
                Err(error) if stream.is_ours() && self.owns(&stream) => return Err(error),
                // Another device's failure, or an end that no event tells of, only leaves more memory in use.
                _ => {}
            }
        }
        self.take_back_kept();
        Ok(())
    }
}

/// Waits for the whole context, unless something is captured there; says whether that went well.
fn is_synchronized(raw: &dyn hal::Device, table: &StreamTable) -> bool {
    let Ok(_context) = ContextHold::for_wait(raw) else { return false };
    // Nothing is submitted to these any more, so a wait for the context is one for them.
    let retired = table.filter(|stream| stream.is_retired() && stream.is_in_context_of(raw));
    let ends: Vec<u64> = retired.iter().map(|stream| stream.submitted()).collect();
    let synchronized = raw.synchronize().is_ok();
    if synchronized {
        retired.iter().zip(ends).for_each(|(stream, end)| stream.set_done(end));
    }
    synchronized
}

impl Drop for DeviceCore {
    /// Waits for the device's work, then returns to the driver what nobody holds: a graph of another device may refer
    /// to memory of this one, and keeps that and the driver's device.
    fn drop(&mut self) {
        let raw = self.raw.clone();
        let (table, streams) = (self.streams.clone(), self.own_streams());
        let visitors = self.visitors();
        let parked: Vec<Parked> =
            lock(&PARKED).extract_if(.., |parked| Arc::ptr_eq(&parked.device, &raw)).collect();
        let pools = self.pools.clone();
        inside::outside(move || {
            // Stream by stream: a wait for the context would break what other handles of the device capture.
            let done = streams.iter().all(|it| it.wait_idle().is_ok()) || is_synchronized(&*raw, &table);
            // A wait that reports the device's loss does not say that nothing runs: the backend does, if it knows.
            let idle = done || raw.has_stopped();
            if !idle || !visitors.iter().all(|it| it.wait_end().is_ok() || it.device.has_stopped()) {
                // What may be in use stays with the process, and in the table the streams that may use it.
                return std::mem::forget((parked, pools));
            }
            // Not before: what is not in the table counts as done. Of a lost device the streams stay: other devices'
            // memory that they were to write was not written, which its guards report. Other handles of the device may
            // share the streams that were not made by us, and be using them: those go when they are found idle.
            if done {
                table.take(|stream| stream.is_ours() && Arc::ptr_eq(&stream.device, &raw));
            }
            drop(parked);
            streams.iter().filter(|stream| stream.is_ours()).for_each(|stream| stream.close());
            pools.close();
            drop(streams);
            table.sweep(&raw);
        });
    }
}
