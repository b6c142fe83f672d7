//! Rows of text in columns.

use std::fmt;

/// Rows of cells under titles. A column without any cell is left out, and a column of numbers is aligned to the right.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new<const N: usize>(titles: [&str; N]) -> Self {
        Self { rows: vec![titles.map(str::to_owned).to_vec()] }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }

    /// Returns whether there is only the titles' row.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() < 2
    }

    fn cells(&self, column: usize) -> impl Iterator<Item = &str> {
        self.rows.iter().map(move |row| row.get(column).map_or("", String::as_str))
    }

    /// Returns the column's width, and whether it is aligned to the right; `None` if nothing is in it.
    fn layout(&self, column: usize) -> Option<(usize, bool)> {
        let is_number = |cell: &str| cell.starts_with(|first: char| first.is_ascii_digit());
        self.cells(column).skip(1).any(|cell| !cell.is_empty()).then(|| {
            let width = self.cells(column).map(|cell| cell.chars().count()).max().unwrap_or(0);
            (width, self.cells(column).skip(1).all(|cell| cell.is_empty() || is_number(cell)))
        })
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.first().map_or(0, Vec::len);
        let layout: Vec<_> = (0..columns).map(|column| self.layout(column)).collect();
        for row in &self.rows {
            let cells = row.iter().zip(&layout).filter_map(|(cell, layout)| {
                let (width, right) = (*layout)?;
                Some(if right { format!("{cell:>width$}") } else { format!("{cell:<width$}") })
            });
            writeln!(f, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}
