//! Text that examples, benchmarks and tasks print: aligned columns, and sizes.

use std::fmt;

/// Rows of cells under titles. A column without any cell is left out, and a column of numbers is aligned to the right.
#[derive(Clone, Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Makes a table with these column titles.
    pub fn new<'a>(titles: impl IntoIterator<Item = &'a str>) -> Self {
        Self { rows: vec![titles.into_iter().map(str::to_owned).collect()] }
    }

    /// Adds a row with a cell for each title.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
        debug_assert_eq!(self.rows.last().map(Vec::len), self.rows.first().map(Vec::len));
    }

    /// Returns the cells of a column, its title first.
    fn column(&self, column: usize) -> impl Iterator<Item = &str> {
        self.rows.iter().filter_map(move |row| row.get(column)).map(String::as_str)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = 0..self.rows.first().map_or(0, Vec::len);
        let layout: Vec<(usize, usize, bool)> = columns
            .filter(|&column| {
                self.rows.len() == 1 || self.column(column).skip(1).any(|cell| !cell.is_empty())
            })
            .map(|column| {
                let width = self.column(column).map(|cell| cell.chars().count()).max().unwrap_or(0);
                let is_number = |cell: &str| cell.starts_with(|first: char| first.is_ascii_digit());
                (column, width, self.column(column).skip(1).any(is_number))
            })
            .collect();
        for (number, row) in self.rows.iter().enumerate() {
            if number > 0 {
                writeln!(f)?;
            }
            let cells = layout.iter().map(|&(column, width, right)| {
                let cell = row.get(column).map_or("", String::as_str);
                if right { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
            });
            f.write_str(cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}

/// A number of bytes in the largest unit that divides it: `4 KiB`, `1025 B`.
#[derive(Clone, Copy, Debug)]
pub struct Bytes(pub usize);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
            if self.0 >= 1 << shift && self.0.is_multiple_of(1 << shift) {
                return write!(f, "{} {unit}", self.0 >> shift);
            }
        }
        write!(f, "{} B", self.0)
    }
}

/// The size of a file: `9999 B`, `12.3 kB`, `4.5 MB`.
#[derive(Clone, Copy, Debug)]
pub struct FileSize(pub u64);

impl fmt::Display for FileSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0..10_000 => write!(f, "{} B", self.0),
            10_000..1_000_000 => write!(f, "{:.1} kB", self.0 as f64 / 1e3),
            _ => write!(f, "{:.1} MB", self.0 as f64 / 1e6),
        }
    }
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
    fn a_column_without_cells_is_left_out() {
        let mut table = Table::new(["name", "none", "size"]);
        table.row(["a", "", "5"].map(str::to_owned));
        table.row(["long", "", "12345"].map(str::to_owned));
        assert_eq!(table.to_string(), "name   size\na         5\nlong  12345");
    }

    #[test]
    fn bytes_have_the_largest_unit_that_divides_them() {
        let sizes = [0, 1023, 4096, 1025, 3 << 20, 1 << 30];
        assert_eq!(
            sizes.map(|size| Bytes(size).to_string()),
            ["0 B", "1023 B", "4 KiB", "1025 B", "3 MiB", "1 GiB"]
        );
    }

    #[test]
    fn files_have_decimal_units() {
        let sizes = [9_999, 12_345, 4_540_000];
        assert_eq!(sizes.map(|size| FileSize(size).to_string()), ["9999 B", "12.3 kB", "4.5 MB"]);
    }
}
