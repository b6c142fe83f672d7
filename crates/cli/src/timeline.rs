//! `gpustream timeline`: prints the report of traces, or draws them.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use gpustream_timeline::{Nanos, Timeline};
use gpustream_timeline_view::text::Bytes;
use gpustream_timeline_view::{Picture, Report, perfetto};

/// Print what traces say, or draw them above each other: gpustream timeline FILE -o out.svg
#[derive(clap::Args)]
pub struct Args {
    /// Traces that gpustream wrote
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Draw into this file, as its name ends: .svg, or .html for a page that zooms; without it a report is printed
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Text above the picture
    #[arg(long, default_value = "", hide_default_value = true)]
    title: String,
    /// Width of an SVG in pixels
    #[arg(long, default_value_t = 1000)]
    width: u32,
    /// Time at the left, from the beginning of each trace: 1.5ms, 20us
    #[arg(long, value_parser = time, default_value = "0ns", hide_default_value = true)]
    from: Nanos,
    /// Time at the right [default: the end]
    #[arg(long, value_parser = time)]
    to: Option<Nanos>,
    /// Leave out the threads of the host
    #[arg(long)]
    no_threads: bool,
}

/// The forms of pictures.
enum Form {
    Svg,
    Html,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let form = args.output.as_deref().map(form).transpose()?;
    let timelines = args.files.iter().map(|file| read(file)).collect::<anyhow::Result<Vec<_>>>()?;
    let (Some(output), Some(form)) = (&args.output, form) else {
        for (name, timeline) in &timelines {
            // If there is only one report, it needs no name.
            if timelines.len() > 1 {
                println!("{name}:");
            }
            println!("{}", Report::of(timeline));
        }
        return Ok(());
    };
    let parts: Vec<_> = match &timelines[..] {
        [(_, timeline)] => vec![("", timeline)],
        several => several.iter().map(|(name, timeline)| (&**name, timeline)).collect(),
    };
    let mut picture =
        Picture::of(&parts).title(&*args.title).width(args.width).from(args.from).threads(!args.no_threads);
    if let Some(to) = args.to {
        picture = picture.to(to);
    }
    let text = match form {
        Form::Svg => picture.svg(),
        Form::Html => picture.html(),
    };
    std::fs::write(output, &text).with_context(|| format!("cannot write {}", output.display()))?;
    println!("{}: {}", output.display(), Bytes(text.len() as u64));
    Ok(())
}

/// Returns the form for a file name.
fn form(output: &Path) -> anyhow::Result<Form> {
    Ok(match output.extension().and_then(|extension| extension.to_str()) {
        Some("svg") => Form::Svg,
        Some("html") => Form::Html,
        _ => bail!("{} ends with neither .svg nor .html", output.display()),
    })
}

/// Reads a trace, and names it by its file.
fn read(file: &Path) -> anyhow::Result<(String, Timeline)> {
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let timeline = perfetto::read(&bytes).with_context(|| file.display().to_string())?;
    let name = file.file_stem().unwrap_or(file.as_os_str()).to_string_lossy().into_owned();
    Ok((name, timeline))
}

/// Reads a time with its unit.
fn time(text: &str) -> Result<Nanos, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim() {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return Err("a time has a unit: 20us, 1.5ms, 3s".to_owned()),
    };
    let number: f64 = number.parse().map_err(|_| format!("`{number}` is no number"))?;
    Ok((number * factor).round() as Nanos)
}
