//! Pictures of made-up timelines.
//!
//! Snapshots are in `tests/snapshots`. If you changed them on purpose, run
//! `BLESS=1 cargo test -p gpustream-timeline-view`, and then look at the result.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here fails the test")]

mod made_up;

use gpustream_timeline::{Direction, SourceLine, Timeline};
use gpustream_timeline_view::Picture;
use made_up::{KERNEL, add, copy, snapshot, timeline, user};
use roxmltree::{Document, Node};

/// Returns the tooltips' texts.
fn tooltips(svg: &str) -> Vec<String> {
    let document = Document::parse(svg).unwrap();
    let titles = document.root_element().descendants().filter(|node| node.has_tag_name("title"));
    titles.skip(1).filter_map(|node| node.text().map(str::to_owned)).collect()
}

/// Returns true for a copy of a text in the page's colour.
fn is_halo(text: &Node<'_, '_>) -> bool {
    text.attribute("class").is_some_and(|class| class.ends_with(" halo"))
}

/// Returns the visible texts.
fn texts(svg: &str) -> Vec<String> {
    let document = Document::parse(svg).unwrap();
    let texts = document.root_element().descendants().filter(|node| node.has_tag_name("text"));
    texts
        .filter(|text| !is_halo(text))
        .filter_map(|node: Node<'_, '_>| node.text().map(str::to_owned))
        .collect()
}

/// Returns the distance from the top of the only text with these words.
fn base_of(svg: &str, words: &str) -> f64 {
    let document = Document::parse(svg).unwrap();
    let mut texts =
        document.descendants().filter(|node| node.has_tag_name("text") && node.text() == Some(words));
    let (text, None) = (texts.next().unwrap(), texts.next()) else { panic!("{words} is there twice") };
    text.attribute("y").unwrap().parse().unwrap()
}

#[test]
fn everything_that_a_picture_can_show() {
    let made = made_up::everything();
    snapshot("everything.svg", &Picture::new(&made).title("everything that a picture can show").svg());
}

#[test]
fn several_timelines_share_an_axis() {
    let ways =
        ["sequential", "two streams", "4 pieces over two streams"].map(|way| (way, made_up::overlap(way)));
    let ways: Vec<_> = ways.iter().map(|(way, made)| (*way, made)).collect();
    snapshot("ways.svg", &Picture::of(&ways).title("overlap, three ways").threads(false).width(800).svg());
}

#[test]
fn empty_timeline_is_drawn() {
    snapshot("empty.svg", &Picture::new(&Timeline::default()).svg());
    assert!(Picture::new(&Timeline::default()).html().contains("</html>"));
}

#[test]
fn picture_shows_the_window_that_is_asked_for() {
    let made = made_up::everything();
    let svg = Picture::new(&made).from(160_000).to(260_000).threads(false).counters(false).svg();
    let tooltips = tooltips(&svg);
    let has = |label: &str| tooltips.iter().any(|tip| tip.starts_with(label));
    assert!(has("step\n") && has("cublasSgemm\n"), "{tooltips:?}");
    assert!(!has("normalize\n") && !has("synchronize\n"), "{tooltips:?}");
    assert!(texts(&svg).contains(&"0.20 ms".to_owned()) || texts(&svg).contains(&"200 µs".to_owned()));
}

#[test]
fn idle_rows_are_left_out_and_named() {
    let mut made = timeline(8);
    for stream in 1..=8 {
        let start = 1000 * stream;
        add(&mut made, stream, "saxpy", KERNEL, 0..10, start..start + 1000);
    }
    let texts_of = |picture: Picture<'_>| texts(&picture.threads(false).svg());
    let all = texts_of(Picture::new(&made));
    assert!((1..=8).all(|stream| all.contains(&format!("stream {stream}"))), "{all:?}");
    assert!(!all.iter().any(|text| text.contains("idle")), "{all:?}");
    let some = texts_of(Picture::new(&made).from(3_500).to(3_900));
    assert!(some.contains(&"stream 3".to_owned()) && !some.contains(&"stream 4".to_owned()), "{some:?}");
    let idle =
        "7 rows are idle in this time and left out: stream 1, stream 2, stream 4, stream 5, stream 6, …";
    assert!(some.contains(&idle.to_owned()), "{some:?}");
    made.streams.iter_mut().for_each(|stream| stream.name = format!("stream {}", stream.id % 2));
    let some = texts_of(Picture::new(&made).from(3_500).to(3_900));
    let idle = "7 rows are idle in this time and left out: stream 1, stream 0";
    assert!(some.contains(&idle.to_owned()), "{some:?}");
}

#[test]
fn streams_are_sorted_by_device_and_number() {
    let mut made = timeline(3);
    made.devices.push(gpustream_timeline::Device {
        id: 1,
        name: "second".to_owned(),
        ..made.devices[0].clone()
    });
    // Their first operations came in another order, and the second device was used first.
    made.streams[1].device = 1;
    made.streams.rotate_left(1);
    for stream in [2, 3, 1] {
        add(&mut made, stream, "saxpy", KERNEL, 0..10, 20..1000);
    }
    let texts = texts(&Picture::new(&made).threads(false).svg());
    let rows: Vec<_> = texts.iter().filter(|text| text.starts_with("stream ")).collect();
    assert_eq!(rows, ["stream 1", "stream 3", "stream 2"]);
}

#[test]
fn texts_are_drawn_after_their_outlines() {
    let svg = Picture::new(&made_up::everything()).svg();
    assert!(!svg.contains("paint-order"));
    let document = Document::parse(&svg).unwrap();
    let halos: Vec<_> = document.descendants().filter(is_halo).collect();
    assert!(!halos.is_empty());
    for halo in halos {
        let text = halo.next_sibling_element().unwrap();
        assert_eq!((text.text(), text.attribute("x")), (halo.text(), halo.attribute("x")));
        assert!(!is_halo(&text));
    }
}

#[test]
fn tooltip_says_what_is_known_of_an_operation() {
    let tooltips = tooltips(&Picture::new(&made_up::everything()).svg());
    let of = |label: &str| tooltips.iter().find(|tip| tip.starts_with(label)).unwrap().as_str();
    assert_eq!(
        of("normalize"),
        "normalize\n95.00 µs to 150.0 µs: 55.00 µs\ngrid 256, block 128\nsrc/main.rs:22\nwaited for copy on stream 1"
    );
    assert_eq!(
        of("copy"),
        "copy\n12.00 µs to 92.00 µs: 80.00 µs\n4 MiB at 52.4 GB/s to the device\nsrc/main.rs:11"
    );
    assert!(of("epoch").ends_with("batch = 7"));
}

#[test]
fn legend_has_only_what_occurs() {
    let mut made = timeline(1);
    add(&mut made, 1, "saxpy", KERNEL, 0..10, 20..100);
    made.threads.clear();
    let texts = texts(&Picture::new(&made).threads(false).svg());
    let last: Vec<_> = texts.iter().skip_while(|text| *text != "stream 1").skip(1).collect();
    assert_eq!(last, ["kernel"]);
}

#[test]
fn slices_of_a_row_that_overlap_lie_in_lanes() {
    let mut made = timeline(1);
    made.devices[0].error = 5;
    for (label, ran) in [("a", 0..100), ("b", 96..200), ("c", 150..400), ("d", 300..500)] {
        add(&mut made, 1, label, KERNEL, 0..1, ran);
    }
    let svg = Picture::new(&made).threads(false).svg();
    // The clock may be off by as much as b begins early.
    assert_eq!(base_of(&svg, "a"), base_of(&svg, "b"));
    assert!(base_of(&svg, "c") > base_of(&svg, "b"));
    assert_eq!(base_of(&svg, "d"), base_of(&svg, "a"));

    // Slices that touch do not overlap.
    made.devices[0].error = 0;
    made.operations[1].ran = Some(100..200);
    let svg = Picture::new(&made).threads(false).svg();
    assert_eq!(base_of(&svg, "a"), base_of(&svg, "b"));
}

#[test]
fn hostile_labels_stay_text() {
    const HOSTILE: &str = "</script></svg><!-- ]]> & \" ' \\ \0\u{1b}\u{ffff}<img onerror=x>";
    let mut made = timeline(1);
    made.devices[0].name = HOSTILE.to_owned();
    made.streams[0].name = HOSTILE.to_owned();
    made.threads[0].name = HOSTILE.to_owned();
    user(&mut made, 0..1000, HOSTILE);
    add(&mut made, 1, HOSTILE, copy(Direction::Up, 1), 0..1000, 0..1000).place =
        SourceLine { file: HOSTILE.into(), line: 1 };
    let picture = Picture::of(&[(HOSTILE, &made)]).title(HOSTILE);
    let svg = picture.svg();
    assert!(tooltips(&svg).iter().any(|tip| tip.starts_with("</script></svg><!-- ]]> & \" ' \\ ")));
    assert!(!svg.contains("<img"));
    let html = picture.html();
    assert!(!html.contains("<img"));
    // The page's own two scripts, and its own end.
    assert_eq!(html.matches("</script>").count(), 2);
    assert_eq!(html.matches("<!--").count(), 0);
}

#[test]
fn placeholders_in_a_label_are_not_filled_in() {
    let mut made = timeline(1);
    add(&mut made, 1, "{script}{data}{title}", KERNEL, 0..1, 0..10);
    let html = Picture::new(&made).title("{data}").html();
    assert!(html.contains("{script}{data}{title}") && html.contains("<title>{data}</title>"));
}

#[test]
fn many_operations_make_a_small_picture_that_counts_them_all() {
    let made = made_up::many(100_000);
    let svg = Picture::new(&made).svg();
    assert!(svg.len() < 400_000, "{} bytes", svg.len());
    let counts = tooltips(&svg).into_iter().map(|tip| match tip.split_once(" slices\n") {
        Some((count, _)) => count.parse::<u32>().unwrap(),
        None => 1,
    });
    // Each operation has a slice on its stream, and one for its submission.
    assert_eq!(counts.sum::<u32>(), 200_000);
}

#[test]
fn no_picture_is_longer_than_a_mebibyte() {
    let mut made = made_up::many(60_000);
    // 150 streams, each with labels as long as those of templates.
    let label = "x".repeat(300);
    for (at, operation) in made.operations.iter_mut().enumerate() {
        operation.point.stream = at as u64 % 150;
        operation.label = label.clone().into();
    }
    let svg = Picture::new(&made).width(2000).svg();
    assert!(svg.len() <= 1 << 20, "{} bytes", svg.len());
    assert!(
        texts(&svg).iter().any(|text| text.starts_with("… and 51 more rows")),
        "{:?}",
        texts(&svg).last()
    );
}
