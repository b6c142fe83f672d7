//! The side of all ranks except 0.

use std::io;
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gpustream::Result;

use super::super::ExchangeError;
use super::channel::{Channel, Distrust};
use super::message::{Answer, Request};
use super::range;
use super::secret::Key;
use super::server::LONGEST_WAIT;
use crate::deadline::{Deadline, Pauses};

/// The first and the longest pause between attempts to connect.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// How long one attempt to connect may take.
const ATTEMPT: Duration = Duration::from_secs(10);
/// How long the first attempts to find rank 0 among other programs may take.
const FIRST_PATIENCE: Duration = Duration::from_millis(100);
/// How long rank 0's answer may take, on top of the wait for the key.
const ROUND_TRIP: Duration = Duration::from_secs(1);

/// One rank's connections to rank 0: as many as there are threads that use the exchange at once.
pub(super) struct Client {
    pub(super) address: String,
    secret: Key,
    /// The time limit for a put.
    limit: Duration,
    idle: Mutex<Vec<Channel>>,
}

/// What we know about rank 0 before an attempt to connect.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rank0 {
    MayComeLater,
    WasThere,
}

impl Client {
    pub(super) fn connect(address: &str, secret: Key, limit: Duration) -> Result<Self> {
        let client = Self { address: address.to_owned(), secret, limit, idle: Mutex::default() };
        let channel = client.open(Deadline::after(limit), limit, Rank0::MayComeLater)?;
        client.idle().push(channel);
        Ok(client)
    }

    /// Looks for rank 0 at several addresses, in turn, until the limit.
    pub(super) fn find(addresses: &[String], secret: &Key, limit: Duration) -> Result<Self> {
        let (deadline, mut pauses) = (Deadline::after(limit), Pauses::new(FIRST_PAUSE, LONGEST_PAUSE));
        // How long we stay with one address. A program that listens but says nothing must not hold up the
        // search.
        let mut patience = FIRST_PATIENCE;
        let mut last = "no program listens there".to_owned();
        loop {
            for address in addresses {
                let (address, idle) = (address.clone(), Mutex::default());
                let client = Self { address, secret: secret.clone(), limit, idle };
                match client.attempt(deadline.or_after(patience)) {
                    Ok(channel) => {
                        client.idle().push(channel);
                        return Ok(client);
                    }
                    Err(Distrust::WrongSecret) => {
                        last = format!(
                            "rank 0 at {} belongs to another run, or has another secret",
                            client.address
                        );
                    }
                    Err(Distrust::Io(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                    Err(Distrust::Io(error)) => last = format!("{}: {}", client.address, described(&error)),
                }
            }
            pauses.pause(deadline);
            if deadline.has_passed() {
                return Err(ExchangeError::Unreachable { address: range(addresses), limit, last }.into());
            }
            patience = (2 * patience).min(ATTEMPT);
        }
    }

    pub(super) fn put(&self, key: &str, bytes: &[u8]) -> Result<()> {
        let deadline = Deadline::after(self.limit);
        self.ask(Request::Put { key, bytes }, deadline, self.limit, |answer| match answer {
            Answer::Put(put) => Some(put.of(key)),
            Answer::Found(_) | Answer::NotYet => None,
        })?
    }

    pub(super) fn get(&self, key: &str, limit: Duration) -> Result<Vec<u8>> {
        let deadline = Deadline::after(limit);
        loop {
            let wait = deadline
                .left()
                .map_or(Duration::ZERO, |left| left.map_or(LONGEST_WAIT, |left| left.min(LONGEST_WAIT)));
            let answered = Deadline::after(wait + ROUND_TRIP);
            let found = self.ask(Request::Get { key, wait }, answered, limit, |answer| match answer {
                Answer::Found(bytes) => Some(Some(bytes.to_vec())),
                Answer::NotYet => Some(None),
                Answer::Put(_) => None,
            })?;
            match found {
                Some(bytes) => return Ok(bytes),
                None if deadline.has_passed() => {
                    return Err(ExchangeError::Late { key: key.to_owned(), limit }.into());
                }
                None => {}
            }
        }
    }

    /// Sends a request and reads the answer. `read` returns `None` if the answer belongs to another request.
    fn ask<R>(
        &self,
        request: Request<'_>,
        deadline: Deadline,
        limit: Duration,
        read: impl FnOnce(Answer<'_>) -> Option<R>,
    ) -> Result<R> {
        let idle = self.idle().pop();
        let mut channel = match idle {
            Some(channel) => channel,
            None => self.open(deadline, limit, Rank0::WasThere)?,
        };
        let answer = channel.send(&request.to_bytes(), deadline).and_then(|()| channel.receive(deadline));
        let answer = answer.map_err(|error| self.gone(&error, limit))?;
        match Answer::read(&answer).and_then(read) {
            Some(answer) => {
                self.idle().push(channel);
                Ok(answer)
            }
            None => Err(self.gone(&io::ErrorKind::InvalidData.into(), limit)),
        }
    }

    /// Connects to rank 0, with retries until the deadline.
    fn open(&self, deadline: Deadline, limit: Duration, rank_0: Rank0) -> Result<Channel> {
        let mut pauses = Pauses::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            let last = match self.attempt(deadline) {
                Ok(channel) => return Ok(channel),
                Err(Distrust::WrongSecret) => {
                    return Err(ExchangeError::WrongSecret { address: self.address.clone() }.into());
                }
                Err(Distrust::Io(error)) => error,
            };
            if rank_0 == Rank0::WasThere && last.kind() == io::ErrorKind::ConnectionRefused {
                return Err(self.gone(&last, limit));
            }
            pauses.pause(deadline);
            if deadline.has_passed() {
                return Err(self.unreachable(&last, limit));
            }
        }
    }

    /// Tries every address that the host name resolves to, one after another.
    fn attempt(&self, deadline: Deadline) -> Result<Channel, Distrust> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in self.address.to_socket_addrs()? {
            let deadline = deadline.or_after(ATTEMPT);
            let stream = TcpStream::connect_timeout(&address, deadline.left()?.unwrap_or(ATTEMPT));
            match stream.map_err(Distrust::Io).and_then(|s| Channel::connect(s, &self.secret, deadline)) {
                Ok(channel) => return Ok(channel),
                Err(Distrust::WrongSecret) => return Err(Distrust::WrongSecret),
                Err(Distrust::Io(error)) => last = error,
            }
        }
        Err(last.into())
    }

    /// Returns the error for a connection that failed while in use.
    #[cold]
    fn gone(&self, error: &io::Error, limit: Duration) -> gpustream::Error {
        if error.kind() == io::ErrorKind::TimedOut {
            return self.unreachable(error, limit);
        }
        ExchangeError::Gone { address: self.address.clone(), last: described(error) }.into()
    }

    #[cold]
    fn unreachable(&self, error: &io::Error, limit: Duration) -> gpustream::Error {
        ExchangeError::Unreachable { address: self.address.clone(), limit, last: described(error) }.into()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Channel>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn described(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::TimedOut => "no answer".to_owned(),
        io::ErrorKind::UnexpectedEof => "the connection was closed".to_owned(),
        _ => error.to_string(),
    }
}
