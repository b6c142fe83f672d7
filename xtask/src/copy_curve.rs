//! `cargo xtask copy-curve`: the table and the plot of `docs/copies.md`, out of what the benchmark measured.

mod plot;

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::workspace;
use plot::Line;

/// Write the table and the plot of docs/copies.md from `cargo xtask bench -- --filter curve --json FILE`
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What the benchmark wrote
    #[arg(value_name = "FILE")]
    results: PathBuf,
}

const PAGE: &str = "docs/copies.md";
const PLOT: &str = "docs/copies.svg";
const BEGIN: &str = "<!-- written by cargo xtask copy-curve -->\n";
const END: &str = "<!-- end -->\n";

/// One size and direction: medians in GB/s.
#[derive(Debug, PartialEq)]
struct Point {
    bytes: u64,
    raw: f64,
    ours: f64,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let text = fs::read_to_string(&args.results)
        .with_context(|| format!("cannot read {}", args.results.display()))?;
    let results: Value = serde_json::from_str(&text)?;
    let [up, down] = ["upload", "download"].map(|direction| points(&results, direction));
    ensure!(
        !up.is_empty() && !down.is_empty(),
        "{} has no rows of both curves beside the raw driver's; run the benchmark with `--filter curve` on a GPU",
        args.results.display()
    );
    let device = results["device"].as_str().unwrap_or("an unnamed device");

    let page = workspace().join(PAGE);
    let old = fs::read_to_string(&page).with_context(|| format!("cannot read {PAGE}"))?;
    fs::write(&page, replaced(&old, &table(device, &up, &down))?)?;
    let lines = [
        Line { name: "upload", style: "stroke:#1b6ca8", values: curve(&up, |point| point.ours) },
        Line {
            name: "raw upload",
            style: "stroke:#1b6ca8;stroke-dasharray:5 4",
            values: curve(&up, |point| point.raw),
        },
        Line { name: "download", style: "stroke:#c1571a", values: curve(&down, |point| point.ours) },
        Line {
            name: "raw download",
            style: "stroke:#c1571a;stroke-dasharray:5 4",
            values: curve(&down, |point| point.raw),
        },
    ];
    fs::write(workspace().join(PLOT), plot::svg(&format!("Copies of ordinary slices, {device}"), &lines))?;
    println!("wrote {PAGE} and {PLOT}");
    Ok(())
}

fn curve(points: &[Point], value: impl Fn(&Point) -> f64) -> Vec<(f64, f64)> {
    points.iter().map(|point| (point.bytes as f64, value(point))).collect()
}

/// The rows of one direction, smallest first.
fn points(results: &Value, direction: &str) -> Vec<Point> {
    let prefix = format!("{direction} curve, slice of ");
    let mut points: Vec<Point> = results["rows"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|row| {
            Some(Point {
                bytes: size(row["what"].as_str()?.strip_prefix(&prefix)?)?,
                raw: row["raw"]["median"].as_f64()?,
                ours: row["gpustream"]["median"].as_f64()?,
            })
        })
        .collect();
    points.sort_by_key(|point| point.bytes);
    points
}

/// `4 KiB` in bytes.
fn size(text: &str) -> Option<u64> {
    let (number, unit) = text.split_once(' ')?;
    let shift = match unit {
        "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return None,
    };
    Some(number.parse::<u64>().ok()? << shift)
}

fn table(device: &str, up: &[Point], down: &[Point]) -> String {
    let mut text = format!(
        "{device}. Medians in GB/s; *raw* is `cuMemcpyHtoDAsync` or `cuMemcpyDtoHAsync` of the same slice in the same run.\n\n\
         | size | upload | raw | ratio | download | raw | ratio |\n|---:|---:|---:|---:|---:|---:|---:|\n"
    );
    for up in up {
        let Some(down) = down.iter().find(|down| down.bytes == up.bytes) else { continue };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:.2} | {} | {} | {:.2} |",
            plot::bytes(up.bytes),
            number(up.ours),
            number(up.raw),
            up.ours / up.raw,
            number(down.ours),
            number(down.raw),
            down.ours / down.raw
        );
    }
    text
}

/// Three digits that count.
fn number(value: f64) -> String {
    let digits = (2 - value.abs().max(1e-9).log10().floor() as i32).max(0) as usize;
    format!("{value:.digits$}")
}

/// The page with what lies between the marks replaced.
fn replaced(page: &str, new: &str) -> Result<String> {
    let parts = page.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = parts.with_context(|| format!("{PAGE} lacks the marks {BEGIN:?} and {END:?}"))?;
    Ok(format!("{before}{BEGIN}\n{new}\n![GB/s by size](copies.svg)\n\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results() -> Value {
        serde_json::json!({"device": "cuda:0 Test", "rows": [
            {"what": "upload curve, slice of 4 KiB", "raw": {"median": 2.0}, "gpustream": {"median": 3.0}},
            {"what": "upload curve, slice of 1 B", "raw": {"median": 0.000_25}, "gpustream": {"median": 0.0005}},
            {"what": "upload curve, slice of 1 GiB", "gpustream": {"failed": "no"}},
            {"what": "download curve, slice of 1 B", "raw": {"median": 0.001}, "gpustream": {"median": 0.001}},
            {"what": "record", "raw": {"median": 1.0}, "gpustream": {"median": 1.0}},
        ]})
    }

    #[test]
    fn rows_of_a_direction_are_found_and_sorted() {
        let up = points(&results(), "upload");
        let expected =
            [Point { bytes: 1, raw: 0.000_25, ours: 0.0005 }, Point { bytes: 4096, raw: 2.0, ours: 3.0 }];
        assert_eq!(up, expected);
        assert_eq!(points(&results(), "download").len(), 1);
        let text = table("x", &up, &points(&results(), "download"));
        assert!(
            text.ends_with("| 1 B | 0.000500 | 0.000250 | 2.00 | 0.00100 | 0.00100 | 1.00 |\n"),
            "{text}"
        );
    }

    #[test]
    fn a_page_can_be_written_again_and_again() {
        let page = format!("a\n{BEGIN}old\n{END}b\n");
        let once = replaced(&page, "new\n").unwrap();
        assert!(
            once.contains("new") && !once.contains("old") && once.starts_with("a\n") && once.ends_with("b\n")
        );
        assert_eq!(replaced(&once, "new\n").unwrap(), once);
        assert!(replaced("no marks", "new").is_err());
    }

    #[test]
    fn the_page_has_the_marks() {
        let page = fs::read_to_string(workspace().join(PAGE)).unwrap();
        replaced(&page, "").unwrap();
    }
}
