//! Messages between ranks as MPI's thread sees them, for ranks that have no other way to talk.

use std::sync::Arc;

use gpustream::Result;

use super::comm::{Comm, Request};
use crate::call::{Collective, Signature};

/// Receives a message.
pub(super) type Deliver = Box<dyn Fn(&[u8]) + Send>;

/// A request about messages.
pub(super) enum Mail {
    /// From now on, deliver messages to this function.
    Open(Deliver),
    /// Send these bytes to all other ranks.
    Send(Arc<[u8]>),
    /// One more thread waits for messages.
    Listen,
    /// One fewer thread waits for messages.
    Rest,
}

/// The messages of a communicator. We only receive a message while a thread waits for one; until then MPI
/// keeps it.
#[derive(Default)]
pub(super) struct Mailbox {
    deliver: Option<Deliver>,
    listeners: usize,
    sending: Vec<(Request, Arc<[u8]>)>,
    coming: Option<(Request, Vec<u8>)>,
}

/// A signature for errors.
pub(super) const CALL: Signature = Signature::of_bytes(Collective::Compare, 0);

impl Mailbox {
    pub(super) fn is_busy(&self) -> bool {
        self.listeners > 0 || !self.sending.is_empty() || self.coming.is_some()
    }

    pub(super) fn take(&mut self, mail: Mail, comm: Comm) -> Result<()> {
        match mail {
            Mail::Open(deliver) => self.deliver = Some(deliver),
            Mail::Listen => self.listeners += 1,
            Mail::Rest => self.listeners -= 1,
            Mail::Send(bytes) => {
                let (rank, size) = comm.place()?;
                for to in (0..size).filter(|to| *to != rank) {
                    // SAFETY: the bytes are kept together with the request.
                    let request = unsafe { comm.send(&bytes, to) }?;
                    self.sending.push((request, bytes.clone()));
                }
            }
        }
        Ok(())
    }

    /// Makes progress with everything. Returns true if a message arrived or was sent.
    pub(super) fn step(&mut self, comm: Comm) -> Result<bool> {
        let (before, mut failed) = (self.sending.len(), None);
        self.sending.retain_mut(|(request, _)| match request.is_done(&CALL, 0) {
            Ok(done) => !done,
            Err(error) => {
                failed = Some(error);
                true
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        let mut moved = self.sending.len() < before;
        while let Some(deliver) = &self.deliver {
            if self.coming.is_none() && self.listeners > 0 {
                // SAFETY: the bytes are kept together with the request, and we use them only once it is done.
                self.coming = unsafe { comm.receive() }?;
            }
            let Some((request, _)) = &mut self.coming else { break };
            if !request.is_done(&CALL, 0)? {
                break;
            }
            if let Some((_, bytes)) = self.coming.take() {
                deliver(&bytes);
            }
            moved = true;
        }
        Ok(moved)
    }
}
