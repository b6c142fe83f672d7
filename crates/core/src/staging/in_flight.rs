//! The limit on how many bytes of pinned memory a stream may have in flight.
//!
//! Uploads return before the device has copied. So without a limit, a host that runs ahead would page-lock all memory. Each
//! stream has its own limit. If a thread reaches it, it waits for the oldest piece of that stream, because that piece
//! depends on nothing that the new one does not depend on too. If it waited for a piece of another stream, it could wait
//! forever.

use std::collections::{HashMap, VecDeque};

use gpustream_hal::Result;

use crate::stream::{StreamCore, StreamEntry};
use crate::sync::{Mutex, lock};
use crate::track::StreamId;

#[derive(Default)]
struct StreamBytes {
    /// How many bytes we granted that may not be copied yet.
    bytes: usize,
    /// The submitted pieces, oldest first: their numbers in the stream, and their bytes.
    submitted: VecDeque<(u64, usize)>,
}

/// How many bytes each stream has in flight, and the limit for each stream.
pub struct InFlight {
    limit: usize,
    accounts: Mutex<HashMap<StreamId, StreamBytes>>,
}

/// Permission to have some bytes in flight. You give it back when you drop it or, if you called
/// [`submitted`](Self::submitted), when the work is done.
pub struct Grant<'a> {
    in_flight: &'a InFlight,
    stream: &'a StreamCore,
    bytes: usize,
}

impl InFlight {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, accounts: Mutex::default() }
    }

    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Grants `bytes` bytes to the entry's stream. Blocks while the stream already has as many in flight as it may.
    pub fn take<'a>(&'a self, entry: &StreamEntry<'a>, bytes: usize) -> Result<Grant<'a>> {
        let stream = entry.stream;
        loop {
            match self.try_take(stream, bytes) {
                Ok(grant) => return Ok(grant),
                Err(oldest) => {
                    let outcome = stream.wait_number_at(oldest, entry.caller.call_site.location);
                    lock(&self.accounts).entry(stream.id).or_default().forget(|number| number <= oldest);
                    outcome?;
                }
            }
        }
    }

    /// Grants `bytes` bytes to a stream. If the stream already has as many in flight as it may, returns the number of its
    /// oldest piece, for which you should wait. Does not block.
    pub fn try_take<'a>(&'a self, stream: &'a StreamCore, bytes: usize) -> Result<Grant<'a>, u64> {
        let mut accounts = lock(&self.accounts);
        let account = accounts.entry(stream.id).or_default();
        account.forget(|number| stream.known_done(number));
        match account.submitted.front() {
            Some(&(oldest, _)) if account.bytes + bytes > self.limit => Err(oldest),
            // Without a piece that we could wait for, other threads are still filling the pieces that use up the limit. So we
            // exceed it.
            _ => {
                account.bytes += bytes;
                Ok(Grant { in_flight: self, stream, bytes })
            }
        }
    }

    fn give_back(&self, stream: StreamId, bytes: usize) {
        let mut accounts = lock(&self.accounts);
        if let Some(account) = accounts.get_mut(&stream) {
            account.bytes -= bytes;
            if account.bytes == 0 {
                accounts.remove(&stream);
            }
        }
    }
}

impl StreamBytes {
    /// Forgets the oldest pieces, as long as they are done.
    fn forget(&mut self, is_done: impl Fn(u64) -> bool) {
        while let Some(&(number, bytes)) = self.submitted.front()
            && is_done(number)
        {
            self.submitted.pop_front();
            self.bytes -= bytes;
        }
    }
}

impl Grant<'_> {
    /// Notes that the work for these bytes has been submitted, up to `number`. The bytes count until that work is done.
    pub fn submitted(self, number: u64) {
        let mut accounts = lock(&self.in_flight.accounts);
        let account = accounts.entry(self.stream.id).or_default();
        account.submitted.push_back((number, self.bytes));
        drop(accounts);
        std::mem::forget(self);
    }
}

impl Drop for Grant<'_> {
    fn drop(&mut self) {
        self.in_flight.give_back(self.stream.id, self.bytes);
    }
}
