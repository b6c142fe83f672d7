//! Rank 0's side: one thread that accepts connections, and one per connection.

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

/// How many connections we accept, each with a thread and a descriptor. Further ones wait to be accepted.
const MAX_CONNECTIONS: usize = 4096;
/// How many connections may be in their handshake.
const MAX_UNTRUSTED: usize = 256;
/// How long a handshake may take.
const TRUST_LIMIT: Duration = Duration::from_secs(10);
/// How long we wait for a key before we tell the other side to ask again. If that rank is gone, it occupies
/// rank 0 no longer than this.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// How long we pause if we cannot accept a connection, for example because descriptors have run out.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// The stack size in bytes of a thread that serves a connection.
const STACK: usize = 256 << 10;

/// The threads that serve a store to other ranks. They end when this is dropped.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    shared: Arc<ServerState>,
    /// Closing it wakes the accepting thread. `None` only inside `drop`.
    wake: Option<PipeWriter>,
    /// `None` only inside `drop`.
    thread: Option<JoinHandle<()>>,
}

struct ServerState {
    store: Store,
    secret: Key,
    connections: Mutex<Connections>,
    /// Notified when a connection ends or has completed its handshake, and at the end.
    changed: Condvar,
}

#[derive(Default)]
struct Connections {
    open: HashMap<u64, Arc<TcpStream>>,
    /// How many of them are still in their handshake.
    untrusted: usize,
    /// The number of the next connection.
    next: u64,
    /// Set when the server ends.
    closed: bool,
}

impl Server {
    pub(super) fn start(listener: TcpListener, secret: Key) -> io::Result<Self> {
        let address = listener.local_addr()?;
        // A connection may go away between the poll and the accept, and then the accept must not block.
        listener.set_nonblocking(true)?;
        // The standard library asks for a short queue. A connection that finds the queue full only retries
        // after seconds.
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
            // An error means that the other side has already ended the connection.
            let _ = stream.shutdown(Shutdown::Both);
        }
        drop(connections);
        self.shared.changed.notify_all();
        self.shared.store.close();
        self.wake = None;
        // The thread ends together with its connections' threads, which have nothing left to wait for.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Accepts connections until the other end of the pipe is dropped.
fn serve(listener: &TcpListener, asleep: &PipeReader, shared: &ServerState) {
    thread::scope(|threads| {
        while shared.wait_for_room() {
            let mut ready = [PollFd::new(asleep, PollFlags::IN), PollFd::new(listener, PollFlags::IN)];
            if poll(&mut ready, None).is_err() {
                // A signal interrupted us.
                continue;
            }
            if !ready[0].revents().is_empty() {
                return;
            }
            match listener.accept() {
                Ok((stream, _)) => {
                    let Some(connection) = Connection::begin(shared, stream) else { return };
                    let builder = Builder::new().name("exchange".into()).stack_size(STACK);
                    // If no thread can be started, the connection closes and the other side tries again.
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
    /// Waits until we may accept another connection. Returns false at the end.
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

/// A connection. It counts as open until it is dropped.
struct Connection<'a> {
    shared: &'a ServerState,
    stream: Arc<TcpStream>,
    number: u64,
    trusted: bool,
}

impl<'a> Connection<'a> {
    /// Registers an accepted connection. Returns `None` if the server is ending.
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

    /// Serves the other side until the connection ends or sends something that no rank would send.
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
