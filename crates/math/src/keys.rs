//! Numbers for calls, so that a replayed step can record them.
//!
//! `Stream::external_keyed` takes a number that stands for everything that decides what a call enqueues. A hash would not do,
//! because two calls could have the same. So each device numbers the descriptions of its calls, in the order in which they first
//! come.

use std::any::Any;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

use gpustream::{Result, Stream};

/// How many descriptions a device keeps. A program whose calls differ each time, for example by a scalar, would fill the memory.
const KEPT: usize = 4096;

/// The numbers of one kind of calls on one device.
struct Keys<D> {
    known: Mutex<(u64, HashMap<D, u64>)>,
}

/// Returns the number of a call with this description. Calls of the same number have equal descriptions, but after very many
/// other calls a description gets a new number. Outside of steps, nobody reads the number, and we make none.
pub(crate) fn key_of<D: Any + Send + Eq + Hash>(stream: &Stream, description: D) -> Result<u64> {
    if !stream.is_in_step() {
        return Ok(0);
    }
    let keys = stream.device().extension(|_| Ok(Keys::<D> { known: Mutex::default() }))?;
    let mut known = keys.known.lock().unwrap_or_else(PoisonError::into_inner);
    let (last, known) = &mut *known;
    if known.len() >= KEPT {
        // A number is never used for another description.
        known.clear();
    }
    Ok(*known.entry(description).or_insert_with(|| {
        *last += 1;
        *last
    }))
}
