//! Prints a report.

use std::collections::HashMap;
use std::fmt;

use super::{Culprit, Engine, Gap, GapOf, Overlap, Report};
use crate::text::{Bytes, Table, Time, percent, rate};
use gpustream_timeline::{Nanos, SourceLine};

/// How many rows the lists of labels and gaps may have.
const ROWS: usize = 10;

impl fmt::Display for Report {
    /// Writes tables. Lists only have their first ten entries, and times are rounded. If you need more, you
    /// can read the fields.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_total(f)?;
        let (of_devices, of_streams) = (self.gaps(true), self.gaps(false));
        let first = [self.devices(), self.streams(), self.overlap(), self.threads(), self.labels()];
        let tables = first.into_iter().chain([self.path(), of_devices, self.causes(), of_streams]);
        tables.filter(|table| !table.is_empty()).try_for_each(|table| writeln!(f, "\n{table}"))
    }
}

impl Report {
    fn write_total(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |time| match percent(time, self.total) {
            share if share.is_empty() => share,
            share => format!(" ({share})"),
        };
        writeln!(
            f,
            "total {} = max(host {}, device {}) + {}{} of synchronisation",
            Time(self.total),
            Time(self.host),
            Time(self.device),
            Time(self.remaining),
            share(self.remaining)
        )?;
        if self.unknown > 0 {
            writeln!(f, "operations without times: {}", self.unknown)?;
        }
        if self.lost > 0 {
            writeln!(
                f,
                "{} records were lost, because they came too fast; the figures lack them",
                self.lost
            )?;
        }
        Ok(())
    }

    fn devices(&self) -> Table {
        let mut table =
            Table::new(["device", "engine", "operations", "busy", "of total", "idle", "bytes", "rate"]);
        for device in &self.devices {
            let time = |time: Nanos| Time(time).to_string();
            let none = String::new;
            table.row([
                device.name.clone(),
                "any".to_owned(),
                none(),
                time(device.busy),
                percent(device.busy, self.total),
                time(device.idle),
                none(),
                none(),
            ]);
            for engine in &device.engines {
                table.row([
                    none(),
                    engine.engine.name().to_owned(),
                    engine.operations.to_string(),
                    time(engine.busy),
                    percent(engine.busy, self.total),
                    time(engine.idle),
                    if engine.bytes == 0 { none() } else { Bytes(engine.bytes).to_string() },
                    rate(engine.bytes, engine.busy),
                ]);
            }
        }
        table
    }

    fn streams(&self) -> Table {
        let mut table = Table::new(["stream", "device", "operations", "busy", "of total", "idle"]);
        let devices: HashMap<_, _> = self.devices.iter().map(|device| (device.id, device)).collect();
        for stream in &self.streams {
            let device = stream.device.and_then(|id| devices.get(&id));
            table.row([
                stream.name.clone(),
                device.map_or(String::new(), |device| device.name.clone()),
                stream.operations.to_string(),
                Time(stream.busy).to_string(),
                percent(stream.busy, self.total),
                Time(stream.idle).to_string(),
            ]);
        }
        table
    }

    fn overlap(&self) -> Table {
        let mut table = Table::new(["overlap", "time", "share", "of"]);
        for device in &self.devices {
            let mut row = |what: &str, overlap: Overlap, of: &str| {
                if overlap.of > 0 {
                    let name = match self.devices.len() {
                        1 => what.to_owned(),
                        _ => format!("{}: {what}", device.name),
                    };
                    let share = percent(overlap.time, overlap.of);
                    table.row([name, Time(overlap.time).to_string(), share, of.to_owned()]);
                }
            };
            row("copies beside kernels", device.copies_with_kernels, "copies");
            row("both directions at once", device.both_directions, "copies up and down");
            row("work beside other work", device.hidden, "all engines' busy time");
        }
        table
    }

    fn threads(&self) -> Table {
        let mut table =
            Table::new(["thread", "operations", "busy", "waiting", "submitting", "each", "allocating"]);
        for thread in &self.threads {
            let time = |time: Nanos| Time(time).to_string();
            table.row([
                thread.name.clone(),
                thread.operations.to_string(),
                time(thread.busy),
                time(thread.waiting),
                time(thread.submitting),
                thread.submitting.checked_div(thread.operations).map_or(String::new(), time),
                if thread.allocating == 0 { String::new() } else { time(thread.allocating) },
            ]);
        }
        table
    }

    fn labels(&self) -> Table {
        let mut table = Table::new(["label", "engine", "count", "time", "share", "mean", "rate"]);
        for label in self.labels.iter().take(ROWS) {
            table.row([
                short(&label.label),
                engine(label.engine),
                label.count.to_string(),
                Time(label.time).to_string(),
                format!("{:.0} %", 100.0 * label.share),
                Time(label.mean()).to_string(),
                rate(label.bytes, label.time),
            ]);
        }
        if let Some(rest) = self.labels.len().checked_sub(ROWS + 1) {
            let none = String::new;
            let count = format!("… and {} more labels", rest + 1);
            table.row([count, none(), none(), none(), none(), none(), none()]);
        }
        table
    }

    fn path(&self) -> Table {
        let path = &self.path;
        let mut table = Table::new(["critical path", "engine", "steps", "time", "share"]);
        if path.steps.is_empty() {
            return table;
        }
        let mut row = |name: String, engine: String, steps: String, time| {
            table.row([name, engine, steps, Time(time).to_string(), percent(time, path.time)]);
        };
        row("all".to_owned(), String::new(), path.steps.len().to_string(), path.time);
        for label in path.labels.iter().take(ROWS) {
            row(short(&label.label), engine(label.engine), label.count.to_string(), label.time);
        }
        row("the host".to_owned(), String::new(), String::new(), path.host);
        row("from one to the next".to_owned(), String::new(), String::new(), path.device);
        table
    }

    fn gaps(&self, of_devices: bool) -> Table {
        let title = if of_devices { "longest gaps" } else { "longest gaps of streams" };
        let mut table = Table::new([title, "time", "before", "cause", ""]);
        let mut gaps: Vec<&Gap> =
            self.gaps.iter().filter(|gap| matches!(gap.of, GapOf::Device(_)) == of_devices).collect();
        gaps.sort_by_key(|gap| std::cmp::Reverse(gap.time.end - gap.time.start));
        for gap in gaps.into_iter().take(ROWS) {
            let next = &gap.next;
            let stream = next.stream.as_deref().filter(|_| of_devices);
            table.row([
                gap.name.clone(),
                Time(gap.time.end - gap.time.start).to_string(),
                described(&next.label, &next.place, stream),
                gap.cause.to_string(),
                gap.culprit.as_ref().map_or(String::new(), |culprit| {
                    let Culprit { label, place, stream } = culprit;
                    described(label, place, stream.as_deref())
                }),
            ]);
        }
        table
    }

    fn causes(&self) -> Table {
        let mut table = Table::new(["idle between operations", "cause", "gaps", "time", "of total"]);
        for device in &self.devices {
            for cause in &device.causes {
                table.row([
                    device.name.clone(),
                    cause.cause.to_string(),
                    cause.gaps.to_string(),
                    Time(cause.time).to_string(),
                    percent(cause.time, self.total),
                ]);
            }
        }
        table
    }
}

fn engine(engine: Option<Engine>) -> String {
    engine.map_or("", Engine::name).to_owned()
}

/// Returns an operation or call with its line and stream.
fn described(label: &str, place: &SourceLine, stream: Option<&str>) -> String {
    let line = match place.line {
        0 => String::new(),
        line => format!(" ({}:{line})", place.file),
    };
    let stream = stream.map_or(String::new(), |stream| format!(" on {stream}"));
    format!("{}{line}{stream}", short(label))
}

/// Shortens a label so that it fits into a column, because template instances have long names.
fn short(label: &str) -> String {
    const MOST: usize = 48;
    // A line break would break the table.
    let mut label: String = label.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if label.chars().count() > MOST {
        label = label.chars().take(MOST - 1).chain(['…']).collect();
    }
    label
}
