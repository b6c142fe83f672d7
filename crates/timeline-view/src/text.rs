//! Text for reports: aligned columns, and times, bytes and rates for people to read.
//!
//! ```
//! use gpustream_timeline_view::text::{Bytes, Table, Time};
//! let mut table = Table::new(["copy", "bytes", "time"]);
//! table.row(["to the device".to_owned(), Bytes(3 << 19).to_string(), Time(12_345).to_string()]);
//! assert_eq!(table.to_string(), "copy             bytes      time\nto the device  1.5 MiB  12.35 µs");
//! ```

use std::fmt;

pub use gpustream_hal::Bytes;
use gpustream_timeline::Nanos;

/// Rows of cells under titles, without a line break at the end. We omit a column if all of its cells are
/// empty, and align it to the right if most of its cells are numbers, so that you can compare them at a
/// glance.
#[derive(Clone, Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Makes a table with these column titles.
    pub fn new<'a>(titles: impl IntoIterator<Item = &'a str>) -> Self {
        Self { rows: vec![titles.into_iter().map(str::to_owned).collect()] }
    }

    /// Adds a row. It must have a cell for each title.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
        debug_assert_eq!(self.rows.last().map(Vec::len), self.rows.first().map(Vec::len));
    }

    /// Returns true if there are only titles.
    pub fn is_empty(&self) -> bool {
        self.rows.len() < 2
    }

    /// Returns the cells of a column, beginning with its title.
    fn column(&self, column: usize) -> impl Iterator<Item = &str> {
        self.rows.iter().map(move |row| row.get(column).map_or("", String::as_str))
    }

    /// Returns a column's width, and true if it is aligned to the right. Returns `None` if we omit it.
    fn layout(&self, column: usize) -> Option<(usize, bool)> {
        let cells = || self.column(column).skip(1).filter(|cell| !cell.is_empty());
        let numbers = cells().filter(|cell| cell.starts_with(|first: char| first.is_ascii_digit())).count();
        let width = self.column(column).map(|cell| cell.chars().count()).max().unwrap_or(0);
        let filled = cells().count();
        (filled > 0 || self.is_empty()).then_some((width, filled > 0 && 2 * numbers >= filled))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = 0..self.rows.first().map_or(0, Vec::len);
        let layout: Vec<_> = columns.map(|column| self.layout(column)).collect();
        for (number, row) in self.rows.iter().enumerate() {
            if number > 0 {
                writeln!(f)?;
            }
            let cells = layout.iter().enumerate().filter_map(|(column, layout)| {
                let ((width, right), cell) = ((*layout)?, row.get(column).map_or("", String::as_str));
                Some(if right { format!("{cell:>width$}") } else { format!("{cell:<width$}") })
            });
            f.write_str(cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}

/// A duration with three or four digits: `12.35 ms`, `870 ns`.
#[derive(Clone, Copy, Debug)]
pub struct Time(pub Nanos);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0 as f64;
        let (value, unit) = match self.0 {
            0..1_000 => return f.pad(&format!("{} ns", self.0)),
            1_000..1_000_000 => (nanos / 1e3, "µs"),
            1_000_000..1_000_000_000 => (nanos / 1e6, "ms"),
            _ => (nanos / 1e9, "s"),
        };
        let digits = if value < 10.0 { 3 } else { usize::from(value < 100.0) + 1 };
        f.pad(&format!("{value:.digits$} {unit}"))
    }
}

/// Bytes per time in gigabytes per second. Empty if no time passed.
pub(crate) fn rate(bytes: u64, time: Nanos) -> String {
    if time == 0 || bytes == 0 {
        return String::new();
    }
    // A byte per nanosecond is a gigabyte per second.
    let rate = bytes as f64 / time as f64;
    if rate < 10.0 { format!("{rate:.2} GB/s") } else { format!("{rate:.1} GB/s") }
}

/// A part of a whole in percent. Empty if the whole is zero.
pub(crate) fn percent(part: Nanos, whole: Nanos) -> String {
    if whole == 0 {
        return String::new();
    }
    let percent = 100.0 * part as f64 / whole as f64;
    if percent < 10.0 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_numbers_stand_to_the_right() {
        let mut table = Table::new(["what", "s", "met"]);
        table.row(["a longer name", "1.25", "yes"].map(str::to_owned));
        table.row(["–", "failed", ""].map(str::to_owned));
        let want = "what                s  met\na longer name    1.25  yes\n–              failed";
        assert_eq!(table.to_string(), want);
    }

    #[test]
    fn names_that_begin_with_a_digit_stand_to_the_left() {
        let mut table = Table::new(["kernel"]);
        for name in ["3d_fft", "add", "saxpy"] {
            table.row([name.to_owned()]);
        }
        assert_eq!(table.to_string(), "kernel\n3d_fft\nadd\nsaxpy");
    }

    #[test]
    fn a_column_without_cells_is_left_out() {
        let mut table = Table::new(["name", "none", "size"]);
        table.row(["a", "", "5"].map(str::to_owned));
        table.row(["long", "", "12345"].map(str::to_owned));
        assert_eq!(table.to_string(), "name   size\na         5\nlong  12345");
    }

    #[test]
    fn times_and_rates_have_few_digits() {
        let times = [0, 999, 1_000, 12_345, 123_456_789, 61_000_000_000].map(|time| Time(time).to_string());
        assert_eq!(times, ["0 ns", "999 ns", "1.000 µs", "12.35 µs", "123.5 ms", "61.00 s"]);
        assert_eq!([rate(5_000, 100), rate(5_000, 0)], ["50.0 GB/s", ""]);
        assert_eq!([percent(1, 8), percent(1, 100), percent(0, 0)], ["12 %", "1.0 %", ""]);
    }
}
