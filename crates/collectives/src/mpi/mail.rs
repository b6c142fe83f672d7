//! Messages from rank to rank as MPI's thread sees them, for ranks that have nothing in common but MPI.

use std::sync::Arc;

use gpustream::Result;

use super::comm::{Comm, Request};
use crate::call::{Collective, Signature};

/// Takes a message that has come.
pub(super) type Deliver = Box<dyn Fn(&[u8]) + Send>;

/// A thing to do with messages.
pub(super) enum Mail {
    /// Messages go there from now on.
    Open(Deliver),
    /// All other ranks get these bytes.
    Send(Arc<[u8]>),
    /// One more thread waits for messages.
    Listen,
    /// One thread fewer waits for messages.
    Rest,
}

/// The messages of a communicator. A message that comes is left to MPI until a thread waits for it.
#[derive(Default)]
pub(super) struct Mailbox {
    deliver: Option<Deliver>,
    listeners: usize,
    sending: Vec<(Request, Arc<[u8]>)>,
    coming: Option<(Request, Vec<u8>)>,
}

/// The words for errors.
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
                    // SAFETY: the bytes stay beside the request.
                    let request = unsafe { comm.send(&bytes, to) }?;
                    self.sending.push((request, bytes.clone()));
                }
            }
        }
        Ok(())
    }

    /// Goes on with everything, and returns whether a message came or went.
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
                // SAFETY: the bytes stay beside the request, which is asked before they are used.
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
