//! The table and the JSON file.

use std::fmt::Write as _;

use crate::measure::Row;

/// What the columns are about.
pub(crate) struct Report<'a> {
    /// The device, in words.
    pub(crate) device: String,
    pub(crate) is_cpu: bool,
    pub(crate) contenders: Vec<&'static str>,
    /// The contender that ratios refer to.
    pub(crate) baseline: &'static str,
    pub(crate) rows: &'a [Row],
}

/// The contender that is held to the targets.
pub(crate) const OURS: &str = "gpustream";

impl Report<'_> {
    /// An aligned table: medians, and in brackets the values below which a tenth and nine tenths lie.
    pub(crate) fn table(&self) -> String {
        let mut lines = vec![self.titles()];
        lines.extend(self.rows.iter().map(|row| self.cells(row)));
        let columns = lines[0].len();
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for line in &lines {
            for (column, (cell, &width)) in line.iter().zip(&widths).enumerate() {
                let end = if column + 1 == columns { "\n" } else { "  " };
                // Words to the left, numbers to the right.
                let _ = match column {
                    0 | 1 => write!(text, "{cell:<width$}{end}"),
                    _ => write!(text, "{cell:>width$}{end}"),
                };
            }
        }
        text
    }

    fn titles(&self) -> Vec<String> {
        let mut titles = vec!["what".to_owned(), "unit".to_owned()];
        titles.extend(self.contenders.iter().map(|name| (*name).to_owned()));
        titles.extend([format!("{OURS}/{}", self.baseline), "target".to_owned(), String::new()]);
        titles
    }

    fn cells(&self, row: &Row) -> Vec<String> {
        let mut cells = vec![row.case.to_string(), row.case.unit().to_owned()];
        for name in &self.contenders {
            let samples = row.samples.iter().find(|samples| samples.contender == *name);
            let failed = row.failures.iter().any(|(failed, _)| failed == name);
            cells.push(match samples {
                Some(samples) => {
                    let [low, median, high] = [0.1, 0.5, 0.9].map(|part| number(samples.quantile(part)));
                    format!("{median} ({low} - {high})")
                }
                None if failed => "failed".to_owned(),
                None => String::new(),
            });
        }
        let target = row.case.target(self.is_cpu).filter(|_| row.median(OURS).is_some());
        cells.push(self.ratio(row).map_or_else(String::new, |ratio| format!("{ratio:.2}")));
        cells.push(target.map_or_else(String::new, |target| target.to_string()));
        cells.push(match self.is_met(row) {
            Some(true) => "met".to_owned(),
            Some(false) => "missed".to_owned(),
            None => String::new(),
        });
        cells
    }

    fn ratio(&self, row: &Row) -> Option<f64> {
        Some(row.median(OURS)? / row.median(self.baseline)?)
    }

    fn is_met(&self, row: &Row) -> Option<bool> {
        row.case.target(self.is_cpu)?.is_met(row.median(OURS)?, row.median(self.baseline))
    }

    /// The same with every sample.
    pub(crate) fn json(&self) -> String {
        let rows: Vec<String> = self.rows.iter().map(|row| self.row_json(row)).collect();
        let device = string(&self.device);
        format!(
            "{{\"device\": {device}, \"baseline\": {}, \"rows\": [\n{}\n]}}\n",
            string(self.baseline),
            rows.join(",\n")
        )
    }

    fn row_json(&self, row: &Row) -> String {
        let mut text =
            format!("  {{\"what\": {}, \"unit\": {}", string(&row.case.to_string()), string(row.case.unit()));
        for samples in &row.samples {
            let values: Vec<String> = samples.values().iter().map(|value| json_number(*value)).collect();
            let [low, median, high] = [0.1, 0.5, 0.9].map(|part| json_number(samples.quantile(part)));
            let _ = write!(
                text,
                ", {}: {{\"median\": {median}, \"p10\": {low}, \"p90\": {high}, \"samples\": [{}]}}",
                string(samples.contender),
                values.join(", ")
            );
        }
        for (contender, failure) in &row.failures {
            let _ = write!(text, ", {}: {{\"failed\": {}}}", string(contender), string(failure));
        }
        if let Some(ratio) = self.ratio(row) {
            let _ = write!(text, ", \"ratio\": {}", json_number(ratio));
        }
        if let (Some(target), Some(met)) = (row.case.target(self.is_cpu), self.is_met(row)) {
            let _ = write!(text, ", \"target\": {}, \"met\": {met}", string(&target.to_string()));
        }
        text + "}"
    }
}

/// Three digits that count, and no exponent.
fn number(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        0.01.. => format!("{value:.3}"),
        _ => format!("{value:.6}"),
    }
}

/// JSON has no word for what is not a number.
fn json_number(value: f64) -> String {
    if value.is_finite() { value.to_string() } else { "null".to_owned() }
}

fn string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\n' => quoted.push_str("\\n"),
            control if (control as u32) < 0x20 => {
                let _ = write!(quoted, "\\u{:04x}", control as u32);
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped() {
        assert_eq!(string("a \"b\"\\\n\u{1}"), r#""a \"b\"\\\n\u0001""#);
    }

    #[test]
    fn numbers_keep_three_digits() {
        assert_eq!(
            [3010.4, 46.04, 1.234, 0.53712, 0.000_12].map(number),
            ["3010", "46.0", "1.23", "0.537", "0.000120"]
        );
    }
}
