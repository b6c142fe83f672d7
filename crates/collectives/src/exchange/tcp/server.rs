//! Rank 0's side: a thread that accepts connections, and one for each of them.

use std::collections::HashMap;
use std::io::{self, PipeReader, PipeWriter};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::super::store::Store;
use super::channel::Channel;
use super::message::{Answer, Request};
use super::secret::Key;
use crate::deadline::Deadline;

/// The most connections, each with a thread and a descriptor. More wait to be accepted.
const MAX_CONNECTIONS: usize = 4096;
/// The most connections that have yet to prove that they know the secret.
const MAX_UNTRUSTED: usize = 256;
/// The time in which a connection has to prove that it knows the secret.
const TRUST_LIMIT: Duration = Duration::from_secs(10);
/// The longest wait for a key before rank 0 says that the key is not there yet, and is asked again. A rank that is gone
/// occupies rank 0 no longer than this.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// The pause after a connection could not be accepted, for want of descriptors for example.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// The stack of a connection's thread, in bytes.
const STACK: usize = 256 << 10;

/// The threads that serve a store to other ranks, until this is dropped.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    shared: Arc<ServerState>,
    /// Its end wakes the thread that accepts. `None` in `drop` alone.
    wake: Option<PipeWriter>,
    /// `None` in `drop` alone.
    thread: Option<JoinHandle<()>>,
}

struct ServerState {
    store: Store,
    secret: Key,
    connections: Mutex<Connections>,
    /// Told when a connection ends or is trusted, and at the end.
    changed: Condvar,
}

#[derive(Default)]
struct Connections {
    open: HashMap<u64, Arc<TcpStream>>,
    /// The number of those that have yet to prove that they know the secret.
    untrusted: usize,
    /// The number of the next connection.
    next: u64,
    /// Set when the server ends.
    closed: bool,
}

impl Server {
    pub(super) fn start(listener: TcpListener, secret: Key) -> io::Result<Self> {
        let address = listener.local_addr()?;
        // A connection may be gone between the poll and the accept, which must not block then.
        listener.set_nonblocking(true)?;
        // The standard library's queue is short, and a connection that finds it full tries again after seconds.
        rustix::net::listen(&listener, MAX_CONNECTIONS as i32)?;
        let (asleep, wake) = io::pipe()?;
        let shared = Arc::new(ServerState {
            store: Store::default(),
            secret,
            connections: Mutex::default(),
            changed: Condvar::new(),
        });
        let for_thread = Arc::clone(&shared);
        let serve = move || serve(&listener, &asleep, &for_thread);
        let thread = Builder::new().name("exchange".into()).spawn(serve)?;
        Ok(Self { address, shared, wake: Some(wake), thread: Some(thread) })
    }

    pub(super) fn store(&self) -> &Store {
        &self.shared.store
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut connections = self.shared.lock();
        connections.closed = true;
        for stream in connections.open.values() {
            // An error means that the other side has ended the connection.
            let _ = stream.shutdown(Shutdown::Both);
        }
        drop(connections);
        self.shared.changed.notify_all();
        self.shared.store.close();
        self.wake = None;
        // The thread ends with all of its connections' threads, which have nothing left to wait for.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Accepts connections until the pipe's other end is dropped.
fn serve(listener: &TcpListener, asleep: &PipeReader, shared: &ServerState) {
    thread::scope(|threads| {
        while shared.wait_for_room() {
            let mut ready = [PollFd::new(asleep, PollFlags::IN), PollFd::new(listener, PollFlags::IN)];
            if poll(&mut ready, None).is_err() {
                // Interrupted by a signal.
                continue;
            }
            if !ready[0].revents().is_empty() {
                return;
            }
            match listener.accept() {
                Ok((stream, _)) => {
                    let Some(connection) = Connection::begin(shared, stream) else { return };
                    let builder = Builder::new().name("exchange".into()).stack_size(STACK);
                    // Without a thread the connection ends, and the other side tries again.
                    let _ = builder.spawn_scoped(threads, move || connection.serve());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => {
                    let _ = poll(&mut [PollFd::new(asleep, PollFlags::IN)], Some(&PAUSE));
                }
            }
        }
    });
}

impl ServerState {
    /// Waits until one more connection may be accepted. Returns false at the end.
    fn wait_for_room(&self) -> bool {
        let full = |connections: &mut Connections| {
            !connections.closed
                && (connections.open.len() >= MAX_CONNECTIONS || connections.untrusted >= MAX_UNTRUSTED)
        };
        let connections = self.changed.wait_while(self.lock(), full);
        !connections.unwrap_or_else(PoisonError::into_inner).closed
    }

    fn answer<'a>(&self, request: Request<'_>, found: &'a mut Option<Arc<[u8]>>) -> Answer<'a> {
        match request {
            Request::Put { key, bytes } => Answer::Put(self.store.put(key, bytes)),
            Request::Get { key, wait } => {
                *found = self.store.wait(key, Deadline::after(wait.min(LONGEST_WAIT)));
                found.as_deref().map_or(Answer::NotYet, Answer::Found)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that counts among the open ones until it is dropped.
struct Connection<'a> {
    shared: &'a ServerState,
    stream: Arc<TcpStream>,
    number: u64,
    trusted: bool,
}

impl<'a> Connection<'a> {
    /// Returns an accepted connection, or `None` at the end.
    fn begin(shared: &'a ServerState, stream: TcpStream) -> Option<Self> {
        let stream = Arc::new(stream);
        let mut connections = shared.lock();
        if connections.closed {
            return None;
        }
        let number = connections.next;
        connections.next += 1;
        connections.untrusted += 1;
        connections.open.insert(number, Arc::clone(&stream));
        Some(Self { shared, stream, number, trusted: false })
    }

    /// Answers the other side until the connection ends, or something comes that no rank sends.
    fn serve(mut self) {
        let trusted =
            Channel::accept(Arc::clone(&self.stream), &self.shared.secret, Deadline::after(TRUST_LIMIT));
        let Ok(mut channel) = trusted else { return };
        self.trusted = true;
        self.shared.lock().untrusted -= 1;
        self.shared.changed.notify_all();
        while let Ok(message) = channel.receive(Deadline::NEVER) {
            let Some(request) = Request::read(&message) else { return };
            let mut found = None;
            let answer = self.shared.answer(request, &mut found).to_bytes();
            if channel.send(&answer, Deadline::NEVER).is_err() {
                return;
            }
        }
    }
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        let mut connections = self.shared.lock();
        connections.open.remove(&self.number);
        connections.untrusted -= usize::from(!self.trusted);
        drop(connections);
        self.shared.changed.notify_all();
    }
}
