//! Time by label.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;

use super::device::{Engine, bytes, each_part};
use gpustream_timeline::{Nanos, Timeline, WorkKind};

/// What all operations with one label did.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LabelReport {
    /// The label.
    pub label: Cow<'static, str>,
    /// The engine that they keep busy, if any. A label may be used on two engines, and is then listed twice.
    pub engine: Option<Engine>,
    /// How many operations have known times. If we can see a graph's nodes, they count instead of the graph.
    pub count: u64,
    /// The total time.
    pub time: Nanos,
    /// The sum of their bytes.
    pub bytes: u64,
    /// Their part of the sum over all labels, from 0 to 1.
    pub share: f64,
}

impl LabelReport {
    /// Returns the mean time of an operation in nanoseconds.
    pub fn mean(&self) -> Nanos {
        self.time / self.count.max(1)
    }
}

pub(crate) fn labels(timeline: &Timeline) -> Vec<LabelReport> {
    let mut labels: HashMap<(&Cow<'static, str>, Option<Engine>), LabelReport> = HashMap::new();
    let mut sum = 0.0;
    let mut add = |label, work: &WorkKind, time: Nanos| {
        let engine = Engine::of(work);
        let entry = labels.entry((label, engine)).or_insert_with(|| LabelReport {
            label: label.clone(),
            engine,
            count: 0,
            time: 0,
            bytes: 0,
            share: 0.0,
        });
        entry.count += 1;
        entry.time = entry.time.saturating_add(time);
        entry.bytes = entry.bytes.saturating_add(bytes(work));
        sum += time as f64;
    };
    for operation in &timeline.operations {
        each_part(operation, |label, work, ran| {
            if let Some(ran) = ran {
                add(label, work, ran.end.saturating_sub(ran.start));
            }
        });
    }
    let mut labels: Vec<_> = labels.into_values().collect();
    for label in &mut labels {
        label.share = if sum == 0.0 { 0.0 } else { label.time as f64 / sum };
    }
    labels.sort_by(|a, b| (Reverse(a.time), &a.label, a.engine).cmp(&(Reverse(b.time), &b.label, b.engine)));
    labels
}
