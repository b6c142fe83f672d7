//! Draws made-up timelines into a folder, so that you can look at them and try them in a browser: `cargo run
//! -p gpustream-timeline-view --example pictures -- FOLDER`.

#[path = "../tests/made_up/mod.rs"]
mod made_up;

use std::fs;
use std::path::PathBuf;

use gpustream_timeline::Timeline;
use gpustream_timeline_view::Picture;

fn main() -> std::io::Result<()> {
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("name a folder for the pictures");
        std::process::exit(2);
    };
    fs::create_dir_all(&folder)?;
    let ways =
        ["sequential", "two streams", "4 pieces over two streams"].map(|way| (way, made_up::overlap(way)));
    let ways: Vec<(&str, &Timeline)> = ways.iter().map(|(way, made)| (*way, made)).collect();
    // Labels come from programs, so they must not be able to do anything in a page.
    let mut hostile = made_up::timeline(1);
    let label = "</script><script>window.harmed=1</script><img src=x onerror=window.harmed=1>";
    made_up::add(&mut hostile, 1, label, made_up::KERNEL, 0..1_000, 2_000..9_000);
    let (everything, many) = (made_up::everything(), made_up::many(100_000));
    for (name, picture) in [
        ("everything", Picture::new(&everything).title("everything that a picture can show")),
        ("many", Picture::new(&many)),
        ("zoomed", Picture::new(&many).from(5_000_000).to(5_060_000)),
        ("hostile", Picture::of(&[(label, &hostile)]).title(label)),
        ("ways", Picture::of(&ways).title("overlap, three ways")),
        ("ways-without-threads", Picture::of(&ways).threads(false).width(800)),
    ] {
        fs::write(folder.join(format!("{name}.svg")), picture.svg())?;
        fs::write(folder.join(format!("{name}.html")), picture.html())?;
    }
    Ok(())
}
