//! The core of an opened device, which all its handles share, and how it ends.
//!
//! This is the top layer of the core: it ties streams, pools and staging together. It does not know the handles. A parked
//! value is just something to drop later.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gpustream_hal::{self as hal, DeviceInfo, Result, WaitPolicy, unheard};

use crate::deferred_drop::drop_elsewhere;
use crate::device_options::DeviceOptions;
use crate::environment::Environment;
use crate::memory::MemoryKind;
use crate::operation::Rules;
use crate::pool::{Pools, Users};
use crate::reentrancy;
use crate::staging::Staging;
use crate::stream::{ContextHold, StreamCore, StreamTable, known_done};
use crate::sync::{Mutex, lock};
use crate::track::Point;

/// A value whose last handle is gone, and the ends of all streams at that moment. Once those are reached, nothing uses the
/// value any more.
struct Parked {
    /// The value, which is only ever dropped.
    what: Box<dyn Send>,
    /// Your values that go after it. They may own anything, even the last handles of their device.
    values: Option<Box<dyn Send>>,
    until: Vec<Point>,
    device: Arc<dyn hal::Device>,
}

impl Parked {
    fn is_done(&self) -> bool {
        self.until.iter().all(|&point| known_done(point))
    }
}

/// The parked values of all devices. They are not in their device, because a parked value may own the last handles of its
/// own device, and then we would never look at that device's list again.
static PARKED: Mutex<Vec<Parked>> = Mutex::new(Vec::new());

/// The core of one opened device, which all its handles share.
pub struct DeviceCore {
    pub raw: Arc<dyn hal::Device>,
    pub info: DeviceInfo,
    pub rules: Rules,
    pub wait: WaitPolicy,
    pub pools: Arc<Pools>,
    pub staging: Staging,
    /// Other devices of the backend by ordinal, and whether this one reaches their memory.
    peers: Mutex<HashMap<usize, bool>>,
    /// Whether streams of other devices have used this one's memory.
    visited: AtomicBool,
}

impl DeviceCore {
    /// Makes the core of an opened device.
    ///
    /// # Safety
    /// The caller keeps [the crate's contract](crate#safety).
    pub unsafe fn new(raw: Arc<dyn hal::Device>, options: DeviceOptions, environment: Environment) -> Self {
        let rules = Rules { tracking: options.tracking, blocking: environment.blocking };
        Self {
            info: raw.info().clone(),
            rules,
            wait: options.wait,
            pools: Pools::new(raw.clone(), options.memory.or(environment.pool), rules),
            staging: Staging::new(options.staging.or(environment.staging)),
            peers: Mutex::default(),
            visited: AtomicBool::new(false),
            raw,
        }
    }

    pub fn own_streams(&self) -> Vec<Arc<StreamCore>> {
        StreamTable::shared().filter(|stream| self.owns(stream))
    }

    /// Returns true if this device's streams may use memory of `other`. That can be this device itself, or a device of the
    /// same backend that it can reach. We turn access on at the first use.
    ///
    /// # Errors
    /// [`InHostClosure`](gpustream_hal::ErrorKind::InHostClosure) inside a closure that may not call the library; the
    /// driver's answer to the question, and to turning access on.
    #[inline]
    pub fn reaches(&self, other: &Self, kind: MemoryKind) -> Result<bool> {
        if std::ptr::eq(self, other) { Ok(true) } else { self.reaches_peer(other, kind) }
    }

    #[cold]
    fn reaches_peer(&self, other: &Self, kind: MemoryKind) -> Result<bool> {
        reentrancy::check_outside()?;
        if self.info.backend != other.info.backend {
            return Ok(false);
        }
        // Page-locked memory of the host is portable: all devices of its backend reach it, whether or not they reach each other.
        if matches!(kind, MemoryKind::Pinned | MemoryKind::WriteCombined | MemoryKind::Registered) {
            other.visit();
            return Ok(true);
        }
        let ordinal = other.info.ordinal;
        // Access that we turn on does not include memory from a driver's pool, and textures belong to one device.
        if ordinal != self.info.ordinal
            && (other.pools.is_of_driver(kind) || matches!(kind, MemoryKind::Array | MemoryKind::Texels))
        {
            return Ok(false);
        }
        let mut peers = lock(&self.peers);
        let known = peers.get(&ordinal).copied();
        let reaches = if let Some(known) = known {
            known
        } else {
            // A device that is opened twice is one device with one address space.
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

    /// Returns the streams that may use this device's memory: its own streams and, if a stream of another device has used
    /// the memory, those of all devices of the backend.
    pub(crate) fn users(&self) -> Vec<Arc<StreamCore>> {
        let visited = self.visited.load(Ordering::Acquire);
        StreamTable::shared().filter(|stream| {
            self.owns(stream) || visited && stream.device.info().backend == self.info.backend
        })
    }

    /// Returns the streams of other devices among [`users`](Self::users).
    pub(crate) fn visitors(&self) -> Vec<Arc<StreamCore>> {
        let mut users = self.users();
        users.retain(|stream| !self.owns(stream));
        users
    }

    pub(crate) fn owns(&self, stream: &StreamCore) -> bool {
        Arc::ptr_eq(&stream.device, &self.raw)
    }

    /// Notes that a stream of another device uses memory of this one.
    pub fn visit(&self) {
        self.visited.store(true, Ordering::Release);
    }

    /// Asks the driver which streams are idle.
    fn poll_own(&self) {
        for stream in self.own_streams() {
            // An error does not say that work is done; the next wait reports the error.
            let _ = unheard(|| stream.poll());
        }
    }

    /// Asks the driver which work is done, and gives the pool the memory that the device's streams keep for their next
    /// short copies.
    pub fn take_back_kept(&self) {
        self.poll_own();
        self.drop_parked();
        for stream in self.own_streams() {
            stream.short_copies.take().for_each(|block| self.pools.release(block));
        }
    }

    /// Drops the parked values that nothing uses any more, and lets go of idle streams that no one holds. The caller may be
    /// an allocation that holds locks, so we drop your values elsewhere.
    pub fn drop_parked(&self) {
        if reentrancy::is_inside() {
            return;
        }
        unheard(|| StreamTable::shared().drop_orphans(&self.raw));
        self.poll_others();
        let is_own = |parked: &Parked| Arc::ptr_eq(&parked.device, &self.raw);
        let is_free = |parked: &mut Parked| (parked.values.is_some() || is_own(parked)) && parked.is_done();
        let free: Vec<Parked> = lock(&PARKED).extract_if(.., is_free).collect();
        for parked in free {
            match parked {
                Parked { what, values: None, .. } => drop(what),
                Parked { what, values: Some(values), .. } if Arc::ptr_eq(&parked.device, &self.raw) => {
                    drop(what);
                    drop_elsewhere(values);
                }
                Parked { what, values, .. } => drop_elsewhere((what, values)),
            }
        }
    }

    /// Asks about the streams that parked closures of other devices wait for, because such a closure may be all that is
    /// left of its device.
    fn poll_others(&self) {
        let others = |parked: &&Parked| parked.values.is_some() && !Arc::ptr_eq(&parked.device, &self.raw);
        let until: Vec<Point> =
            lock(&PARKED).iter().filter(others).flat_map(|parked| parked.until.iter().copied()).collect();
        for point in until {
            if let Some(stream) = StreamTable::shared().get(point.stream)
                && !stream.known_done(point.number)
            {
                // An error does not say that work is done; the next wait reports the error.
                let _ = unheard(|| stream.poll());
            }
        }
    }

    /// Drops `what` and then your `values` once everything submitted so far is done. If it is done already, drops them now,
    /// because you are dropping their handle. The values may own this device, so any other device may drop what we keep.
    pub fn park(&self, what: Box<dyn Send>, values: Option<Box<dyn Send>>) {
        // Streams of another device only matter if they have used this device's memory. No one asks the driver about such
        // streams here, so otherwise `what` would stay longer than needed.
        let until =
            self.users().into_iter().map(|stream| Point { stream: stream.id, number: stream.counted() });
        let parked = Parked { what, values, until: until.collect(), device: self.raw.clone() };
        self.poll_own();
        if parked.is_done() {
            drop(parked);
        } else {
            lock(&PARKED).push(parked);
        }
        self.drop_parked();
    }

    /// Blocks until everything submitted to the device's own streams is done, and reports failures.
    ///
    /// # Errors
    /// [`Captured`](gpustream_hal::ErrorKind::Captured) while a stream of the context is captured,
    /// [`InHostClosure`](gpustream_hal::ErrorKind::InHostClosure) inside a closure that must not call the library, and what
    /// failed on the device.
    pub fn synchronize(&self) -> Result<()> {
        reentrancy::check_outside()?;
        let streams = self.own_streams();
        drop(ContextHold::for_wait(&*self.raw)?);
        // So that the wait for the context is short. That one reports failures.
        self.wait_by_events();
        let context = ContextHold::for_wait(&*self.raw)?;
        let ends: Vec<u64> = streams.iter().map(|stream| stream.submitted()).collect();
        self.raw.synchronize()?;
        drop(context);
        streams.iter().zip(ends).for_each(|(stream, end)| stream.set_done(end));
        streams.iter().try_for_each(|stream| stream.report_failures())
    }

    /// Blocks until everything submitted to the device's own streams is done, and reports no failures. Other threads can
    /// capture meanwhile: a wait for the whole context would break their captures.
    pub fn wait_by_events(&self) {
        for stream in self.own_streams() {
            let _ = unheard(|| stream.wait_end());
        }
    }
}

impl Users for DeviceCore {
    /// Marks each stream's end too, so that the next look can tell more.
    fn poll(&self) {
        for stream in self.users() {
            // An error says nothing about being done. We tell the next one who waits.
            let _ = unheard(|| stream.poll_and_mark());
        }
        self.drop_parked();
    }

    fn known_idle(&self) -> bool {
        self.own_streams().iter().all(|stream| stream.known_done(stream.counted()))
    }

    /// Waits for each stream, because a wait for the device would break the captures of other threads.
    fn wait(&self) -> Result<()> {
        for stream in self.users() {
            match stream.wait_end() {
                Err(error) if stream.is_ours() && self.owns(&stream) => return Err(error),
                // The failure of another device, or an end that no event tells of, only leaves more memory in use.
                _ => {}
            }
        }
        self.take_back_kept();
        Ok(())
    }
}

/// Waits for the whole context, unless something is being captured there. Returns true if the wait succeeded.
fn is_synchronized(raw: &dyn hal::Device) -> bool {
    let Ok(_context) = ContextHold::for_wait(raw) else { return false };
    // Nothing is submitted to these streams any more, so a wait for the context is a wait for all their work.
    let retired = StreamTable::shared().filter(|stream| stream.is_retired() && stream.is_in_context_of(raw));
    let ends: Vec<u64> = retired.iter().map(|stream| stream.submitted()).collect();
    let synchronized = raw.synchronize().is_ok();
    if synchronized {
        retired.iter().zip(ends).for_each(|(stream, end)| stream.set_done(end));
    }
    synchronized
}

/// Waits for the streams that other handles have in this context, through events. If we waited in a driver's call, no other
/// thread could call the driver meanwhile, and such a thread may have to end the work that we wait for.
fn wait_for_others(raw: &dyn hal::Device) {
    // Streams that only the table holds are left out: a lost device may have left them there.
    let is_held = |stream: &Arc<StreamCore>| stream.is_in_context_of(raw) && !stream.is_orphan();
    for stream in StreamTable::shared().filter(is_held) {
        // If we cannot wait for a stream through an event, we leave it to the driver.
        let _ = stream.wait_end();
    }
}

impl Drop for DeviceCore {
    /// Waits for the device's work, then returns the memory that no one holds to the driver. A graph of another device may
    /// refer to memory of this one; then it keeps that memory and the driver's device.
    fn drop(&mut self) {
        let raw = self.raw.clone();
        let streams = self.own_streams();
        let visitors = self.visitors();
        let parked: Vec<Parked> =
            lock(&PARKED).extract_if(.., |parked| Arc::ptr_eq(&parked.device, &raw)).collect();
        let pools = self.pools.clone();
        reentrancy::outside(move || {
            // Stream by stream, because a wait for the context would break the captures of other handles of the device.
            let done = streams.iter().all(|it| it.wait_idle().is_ok()) || is_synchronized(&*raw);
            // A wait that reports the device's loss does not say that nothing runs; the backend says so, if it knows.
            let idle = done || raw.has_stopped();
            if !idle || !visitors.iter().all(|it| it.wait_end().is_ok() || it.device.has_stopped()) {
                // Memory that may be in use stays with the process, and the streams that may use it stay in the table.
                return std::mem::forget((parked, pools));
            }
            // Not before, because a stream that is not in the table counts as done. The streams of a lost device stay:
            // their writes to memory of other devices were not done, which the guards of that memory report. Streams
            // that were not made by us may be in use through other handles of the device, and go when they are found
            // idle.
            if done {
                StreamTable::shared().take(|stream| stream.is_ours() && Arc::ptr_eq(&stream.device, &raw));
                if pools.free_would_wait() {
                    wait_for_others(&*raw);
                }
            }
            drop(parked);
            streams.iter().filter(|stream| stream.is_ours()).for_each(|stream| stream.short_copies.close());
            pools.close();
            drop(streams);
            StreamTable::shared().drop_orphans(&raw);
        });
    }
}
