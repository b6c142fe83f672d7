//! What you would write in Rust for the CPU: chunks of slices on as many threads. If you cannot beat this, you need no
//! kernel.

use std::thread;

use anyhow::Result;

use crate::case::Case;
use crate::measure::{Contender, Sampler, gigabytes};
use crate::meetings;

/// The column's title.
pub(crate) const NAME: &str = "loop";

/// Plain loops on scoped threads.
pub(crate) struct HostLoop {
    threads: usize,
}

impl HostLoop {
    pub(crate) fn new(threads: usize) -> Self {
        Self { threads: threads.max(1) }
    }
}

impl Contender for HostLoop {
    fn name(&self) -> &'static str {
        NAME
    }

    fn prepare(&self, case: Case) -> Result<Option<Sampler>> {
        let threads = self.threads;
        let (n, body): (_, Loop) = match case {
            Case::Add(n) => (n, add),
            Case::Saxpy(n) => (n, saxpy),
            Case::Meeting(meeting) => return Ok(Some(meetings::on_host(meeting))),
            _ => return Ok(None),
        };
        let (x, y, mut z) = (vec![1.0f32; n], vec![2.0f32; n], vec![2.0f32; n]);
        Ok(Some(Box::new(move || {
            gigabytes(3 * 4 * n, |count| {
                in_chunks(threads, count, &x, &y, &mut z, body);
                Ok(())
            })
        })))
    }
}

type Loop = fn(&[f32], &[f32], &mut [f32]);

/// Goes over each chunk `count` times on a thread of its own, because the time to start threads must not count.
fn in_chunks(threads: usize, count: usize, x: &[f32], y: &[f32], z: &mut [f32], body: Loop) {
    let chunk = z.len().div_ceil(threads).max(1);
    thread::scope(|scope| {
        for ((x, y), z) in x.chunks(chunk).zip(y.chunks(chunk)).zip(z.chunks_mut(chunk)) {
            scope.spawn(move || (0..count).for_each(|_| body(x, y, z)));
        }
    });
}

fn add(x: &[f32], y: &[f32], z: &mut [f32]) {
    for ((z, x), y) in z.iter_mut().zip(x).zip(y) {
        *z = x + y;
    }
}

fn saxpy(x: &[f32], _unused: &[f32], y: &mut [f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += 3.0 * x;
    }
}
