//! Text in aligned columns.

use std::fmt;

/// Rows of text, printed with the first column to the left and the others to the right.
#[derive(Clone, Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these column titles.
    pub fn new<const N: usize>(titles: [&str; N]) -> Self {
        Self { rows: vec![titles.map(str::to_owned).to_vec()] }
    }

    /// Adds a row.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }

    fn width(&self, column: usize) -> usize {
        self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, row) in self.rows.iter().enumerate() {
            if number > 0 {
                writeln!(f)?;
            }
            for (column, cell) in row.iter().enumerate() {
                let width = self.width(column);
                if column == 0 {
                    write!(f, "{cell:<width$}")?;
                } else {
                    write!(f, "  {cell:>width$}")?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(["what", "s"]);
        table.row(["a longer name".into(), "1.25".into()]);
        table.row(["–".into(), "10".into()]);
        assert_eq!(table.to_string(), "what              s\na longer name  1.25\n–                10");
    }
}
