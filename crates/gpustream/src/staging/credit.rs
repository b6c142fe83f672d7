//! How much pinned memory a stream may have under way.
//!
//! Uploads return before the device has copied, so without a limit a host that runs ahead would page-lock all
//! memory. The limit is each stream's own: whoever reaches it waits for that stream's oldest piece, which depends on
//! nothing that the new one does not depend on too. Waiting for another stream's could wait for ever.

use std::collections::{HashMap, VecDeque};

use gpustream_hal::Result;

use crate::queue::StreamCore;
use crate::sync::{Mutex, lock};
use crate::track::StreamId;

#[derive(Default)]
struct Account {
    /// Bytes granted and not known to be copied.
    bytes: usize,
    /// Submitted pieces, oldest first: number in the stream, and bytes.
    submitted: VecDeque<(u64, usize)>,
}

pub(crate) struct Credit {
    limit: usize,
    accounts: Mutex<HashMap<StreamId, Account>>,
}

/// Leave to have some bytes under way; given back when dropped, or when what it was taken for is done.
pub(crate) struct Grant<'a> {
    credit: &'a Credit,
    stream: &'a StreamCore,
    bytes: usize,
}

impl Credit {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, accounts: Mutex::default() }
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Blocks while the stream has as much under way as it may.
    pub(crate) fn take<'a>(&'a self, stream: &'a StreamCore, bytes: usize) -> Result<Grant<'a>> {
        loop {
            let mut accounts = lock(&self.accounts);
            let account = accounts.entry(stream.id).or_default();
            account.settle(stream);
            let oldest =
                if account.bytes + bytes <= self.limit { None } else { account.submitted.pop_front() };
            let Some((number, freed)) = oldest else {
                // What is over the limit is being filled by other threads at this moment.
                account.bytes += bytes;
                return Ok(Grant { credit: self, stream, bytes });
            };
            drop(accounts);
            let outcome = stream.wait_number(number);
            self.give_back(stream.id, freed);
            outcome?;
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

impl Account {
    /// Forgets what is known to be done.
    fn settle(&mut self, stream: &StreamCore) {
        while let Some(&(number, bytes)) = self.submitted.front()
            && stream.known_done(number)
        {
            self.submitted.pop_front();
            self.bytes -= bytes;
        }
    }
}

impl Grant<'_> {
    /// What the bytes are for has been submitted, up to `number`: they count until that is done.
    pub(crate) fn submitted(self, number: u64) {
        let mut accounts = lock(&self.credit.accounts);
        let account = accounts.entry(self.stream.id).or_default();
        account.submitted.push_back((number, self.bytes));
        drop(accounts);
        std::mem::forget(self);
    }
}

impl Drop for Grant<'_> {
    fn drop(&mut self) {
        self.credit.give_back(self.stream.id, self.bytes);
    }
}
