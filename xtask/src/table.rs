//! Aligned text tables.

/// Rows of cells under headings; a column whose every cell is empty is left out.
pub(crate) struct Table {
    headings: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(headings: &[&'static str]) -> Self {
        Self { headings: headings.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.headings.len());
        self.rows.push(cells);
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let columns: Vec<usize> =
            (0..self.headings.len()).filter(|&c| self.rows.iter().any(|row| !row[c].is_empty())).collect();
        let width = |c: usize| {
            let cells = self.rows.iter().map(|row| row[c].chars().count());
            cells.chain([self.headings[c].chars().count()]).max().unwrap_or(0)
        };
        let numeric = |c: usize| {
            self.rows.iter().all(|row| row[c].is_empty() || row[c].starts_with(|d: char| d.is_ascii_digit()))
        };
        let layout: Vec<_> = columns.into_iter().map(|c| (c, width(c), numeric(c))).collect();
        let headings: Vec<String> = self.headings.iter().map(|h| (*h).to_owned()).collect();
        for row in std::iter::once(&headings).chain(&self.rows) {
            let mut line = String::new();
            for &(c, width, numeric) in &layout {
                let cell = &row[c];
                line += &if numeric { format!("{cell:>width$}  ") } else { format!("{cell:<width$}  ") };
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn numbers_are_right_aligned_and_empty_columns_left_out() {
        let mut table = Table::new(&["name", "none", "size"]);
        table.row(vec!["a".into(), String::new(), "5".into()]);
        table.row(vec!["long".into(), String::new(), "12345".into()]);
        assert_eq!(table.to_string(), "name   size\na         5\nlong  12345\n");
    }
}
