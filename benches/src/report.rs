//! The table for you to read, and the JSON file with every sample.

use gpustream_timeline_view::text::Table;
use serde_json::{Value, json};

use crate::measure::Row;

/// The device, the contenders and the rows of one run.
pub(crate) struct Report<'a> {
    /// The device's description.
    pub(crate) device: String,
    pub(crate) is_cpu: bool,
    pub(crate) contenders: Vec<&'static str>,
    pub(crate) rows: &'a [Row],
}

/// The contender that the targets apply to.
pub(crate) const OURS: &str = "gpustream";

impl Report<'_> {
    /// Returns an aligned table: medians, and in brackets the 10th and 90th percentiles.
    pub(crate) fn table(&self) -> String {
        let titles = self.titles();
        let mut table = Table::new(titles.iter().map(String::as_str));
        self.rows.iter().for_each(|row| table.row(self.cells(row)));
        table.to_string()
    }

    fn titles(&self) -> Vec<String> {
        let mut titles = vec!["what".to_owned(), "unit".to_owned()];
        titles.extend(self.contenders.iter().map(|name| (*name).to_owned()));
        titles.extend([
            format!("{OURS}/{}", if self.is_cpu { "loop" } else { "raw" }),
            "target".to_owned(),
            String::new(),
        ]);
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

    fn baseline(&self, row: &Row) -> Option<f64> {
        row.median(row.case.baseline(self.is_cpu))
    }

    fn ratio(&self, row: &Row) -> Option<f64> {
        Some(row.median(OURS)? / self.baseline(row)?)
    }

    fn is_met(&self, row: &Row) -> Option<bool> {
        row.case.target(self.is_cpu)?.is_met(row.median(OURS)?, self.baseline(row))
    }

    /// Returns the results as JSON with every sample; each row is a line.
    pub(crate) fn json(&self) -> String {
        let rows: Vec<String> = self.rows.iter().map(|row| format!("  {}", self.row_json(row))).collect();
        format!("{{\"device\": {}, \"rows\": [\n{}\n]}}\n", json!(self.device), rows.join(",\n"))
    }

    fn row_json(&self, row: &Row) -> Value {
        let mut value = json!({ "what": row.case.to_string(), "unit": row.case.unit() });
        value["baseline"] = json!(row.case.baseline(self.is_cpu));
        for samples in &row.samples {
            let [low, median, high] = [0.1, 0.5, 0.9].map(|part| samples.quantile(part));
            value[samples.contender] =
                json!({ "median": median, "p10": low, "p90": high, "samples": samples.values() });
        }
        for (contender, failure) in &row.failures {
            value[*contender] = json!({ "failed": failure });
        }
        if let Some(bytes) = row.case.slice() {
            value["bytes"] = json!(bytes);
        }
        if let Some(ratio) = self.ratio(row) {
            value["ratio"] = json!(ratio);
        }
        if let (Some(target), Some(met)) = (row.case.target(self.is_cpu), self.is_met(row)) {
            value["target"] = json!(target.to_string());
            value["met"] = json!(met);
        }
        value
    }
}

/// Formats a number with three significant digits and no exponent.
fn number(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        0.01.. => format!("{value:.3}"),
        _ => format!("{value:.6}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        assert_eq!(
            [3010.4, 46.04, 1.234, 0.53712, 0.000_12].map(number),
            ["3010", "46.0", "1.23", "0.537", "0.000120"]
        );
    }
}
