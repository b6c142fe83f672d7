//! You can copy two- and three-dimensional boxes in every direction. We compare with a plain loop.

use conformance::{Gate, assert_all, kernels_and_streams, refused, tests};
use gpustream::{AsView, AsViewMut, Device, ErrorKind, Pitched, Result, Stream};

tests! {
    Plain: boxes_are_copied_in_every_direction, a_tile_of_an_image_is_copied, neighbours_stay_as_they_are,
        boxes_are_ordered_with_everything_else, boxes_that_do_not_fit_are_refused, empty_boxes_copy_nothing;
}

fn expected(src: &[u16], from: Pitched, dst: &mut [u16], to: Pitched, [width, height, depth]: [usize; 3]) {
    for z in 0..depth {
        for y in 0..height {
            for x in 0..width {
                let at = |it: Pitched| it.offset + x + it.pitch * (y + if z == 0 { 0 } else { it.rows * z });
                dst[at(to)] = src[at(from)];
            }
        }
    }
}

const LEN: usize = 4000;

const BOXES: [(Pitched, Pitched, [usize; 3]); 6] = [
    (Pitched::new_2d(10), Pitched::new_2d(7), [7, 9, 1]),
    (Pitched::new_2d(33).at(3, 2), Pitched::new_2d(40).at(11, 1), [20, 30, 1]),
    (Pitched::new_3d(10, 10), Pitched::new_3d(8, 9), [8, 9, 10]),
    (Pitched::new_3d(13, 11).at_plane(2, 1, 3), Pitched::new_3d(16, 12).at_plane(5, 3, 1), [9, 7, 5]),
    (Pitched::new_2d(1), Pitched::new_2d(50), [1, 70, 1]),
    (Pitched::new_2d(100).at(7, 0), Pitched::new_2d(200).at(0, 3), [60, 1, 1]),
];

fn copied(
    s: &Stream,
    values: &[u16],
    src: &impl AsView<u16>,
    dst: &mut impl AsViewMut<u16>,
    what: &str,
) -> Result<()> {
    for (index, (from, to, extent)) in BOXES.into_iter().enumerate() {
        s.fill(dst, 0xffff)?;
        s.copy_box(src, from, dst, to, extent)?;
        let mut want = vec![0xffff; LEN];
        expected(values, from, &mut want, to, extent);
        assert!(s.download(&dst.view_mut().view())? == want, "box {index}, {what}");
    }
    Ok(())
}

fn boxes_are_copied_in_every_direction(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let values: Vec<u16> = (0..LEN as u16).collect();
    let (on_device, on_host) = (s.upload(&values)?, device.pinned_from(&values)?);
    let (mut x, mut host) = (s.zeros::<u16>(LEN)?, device.pinned::<u16>(LEN)?);
    copied(&s, &values, &on_device, &mut x, "device to device")?;
    copied(&s, &values, &on_device, &mut host, "device to host")?;
    copied(&s, &values, &on_host, &mut x, "host to device")?;
    copied(&s, &values, &on_host, &mut host, "host to host")
}

/// The image is larger here, and a pixel has several bytes.
fn a_tile_of_an_image_is_copied(device: &Device) -> Result<()> {
    const SIDE: usize = 1000;
    let s = device.stream()?;
    let image: Vec<[u8; 4]> = (0..(SIDE * SIDE) as u32).map(u32::to_ne_bytes).collect();
    let on_device = s.upload(&image)?;
    let mut tile = device.pinned::<[u8; 4]>(300 * 200)?;
    s.copy_box(
        &on_device,
        Pitched::new_2d(SIDE).at(650, 777),
        &mut tile,
        Pitched::new_2d(300),
        [300, 200, 1],
    )?;
    let tile = tile.read()?;
    for (y, row) in tile.chunks(300).enumerate() {
        let start = (777 + y) * SIDE + 650;
        assert_eq!(*row, image[start..start + 300], "row {y}");
    }
    Ok(())
}

/// We copy between views. Elements before, after and between the rows must not change.
fn neighbours_stay_as_they_are(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let src = s.full(100, 1u32)?;
    let mut x = s.zeros::<u32>(100)?;
    let mut view = x.slice_mut(20..80)?;
    s.copy_box(&src.slice(10..)?, Pitched::new_2d(4), &mut view, Pitched::new_2d(10).at(3, 1), [4, 5, 1])?;
    let got = s.download(&x)?;
    for (index, &value) in got.iter().enumerate() {
        let inside = (20..80).contains(&index) && {
            let (column, row) = ((index - 20) % 10, (index - 20) / 10);
            (3..7).contains(&column) && (1..6).contains(&row)
        };
        assert_eq!(value, u32::from(inside), "element {index}");
    }
    Ok(())
}

fn boxes_are_ordered_with_everything_else(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let mut x = a.full(100, 1u32)?;
    let mut y = b.zeros::<u32>(25)?;
    conformance::synchronize(device)?;
    let gate = Gate::adding(&kernels, &a, &mut x, 4)?;
    b.copy_box(&x, Pitched::new_2d(10).at(5, 5), &mut y, Pitched::new_2d(5), [5, 5, 1])?;
    // The fill must come after the copy has read the box.
    a.fill(&mut x, 9)?;
    assert!(!b.is_done()?);
    gate.open();
    assert_eq!(b.download(&y)?, [5; 25]);
    assert_all(&a, &x, 9)
}

fn boxes_that_do_not_fit_are_refused(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let src = s.full(100, 1u8)?;
    let mut x = s.zeros::<u8>(100)?;
    let ten = Pitched::new_2d(10);
    let outside = ErrorKind::OutOfBounds;
    refused(s.copy_box(&src, ten, &mut x, ten, [10, 11, 1]), outside, &["source"]);
    refused(s.copy_box(&src, ten, &mut x, ten.at(1, 1), [10, 9, 1]), outside, &["destination"]);
    refused(s.copy_box(&src, ten.at(usize::MAX, 3), &mut x, ten, [1, 1, 1]), outside, &["source"]);
    refused(s.copy_box(&src, ten, &mut x, ten, [11, 2, 1]), ErrorKind::InvalidArgument, &["overlap"]);
    let planes = Pitched::new_3d(5, 2);
    refused(s.copy_box(&src, planes, &mut x, planes, [5, 3, 2]), ErrorKind::InvalidArgument, &["overlap"]);
    assert_all(&s, &x, 0)
}

fn empty_boxes_copy_nothing(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let src = s.full(10, 1u8)?;
    let mut x = s.zeros::<u8>(10)?;
    for extent in [[0, 5, 5], [5, 0, 5], [5, 5, 0]] {
        s.copy_box(&src, Pitched::new_2d(1000).at(3, 3), &mut x, Pitched::new_2d(5), extent)?;
    }
    assert_all(&s, &x, 0)
}
