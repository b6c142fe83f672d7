//! Kernels fetch from textures what CUDA's formulas say.

use conformance::textures::Kernels;
use conformance::{ONE, refused, tests, with_stream};
use gpustream::half::f16;
use gpustream::{
    AddressMode, ArrayShape, Buffer, Device, ErrorKind, FilterMode, Pitched, Result, Stream, Texel, Texture,
    TextureOptions,
};

tests! {
    Plain if has_textures: arrays_bring_back_the_same_values, boxes_of_arrays_are_copied,
        points_and_weighted_means_of_every_shape_are_fetched, every_address_mode_gives_its_value,
        layers_are_fetched_apart, every_type_of_texel_arrives, integers_are_read_as_normalised_numbers,
        halves_are_filtered, linear_memory_is_fetched_by_number, linear_memory_is_written_between_fetches,
        a_write_and_a_fetch_of_one_memory_are_refused, surfaces_of_every_shape_are_written,
        every_type_of_texel_is_stored, boundary_modes_decide_what_lies_outside;
    Isolated if has_textures: a_store_beside_a_surface_ends_the_kernel;
    CpuOnly: a_fetch_of_another_type_ends_the_kernel;
}

/// Returns true if the device has textures. If it has none, checks that the error says so.
pub(crate) fn has_textures(device: &Device) -> bool {
    if device.info().features.textures {
        return true;
    }
    refused(device.array::<f32>(ArrayShape::new_2d(2, 2)), ErrorKind::Unsupported, &["image instructions"]);
    false
}

/// Returns the texel that an index outside the axis stands for, as in CUDA's guide. Returns `None` for the border.
fn beside(mode: AddressMode, index: i64, texels: i64) -> Option<i64> {
    match mode {
        AddressMode::Clamp => Some(index.clamp(0, texels - 1)),
        AddressMode::Border => (0..texels).contains(&index).then_some(index),
        AddressMode::Wrap => Some(index.rem_euclid(texels)),
        AddressMode::Mirror => {
            let place = index.rem_euclid(2 * texels);
            Some(place.min(2 * texels - 1 - place))
        }
    }
}

/// A texture on the host. We compare it with what devices fetch.
struct Reference<'a> {
    texels: &'a [f32],
    extent: [usize; 3],
    options: TextureOptions,
    /// Neighbours are filtered along this many axes.
    axes: usize,
}

impl Reference<'_> {
    /// Returns the texels along one axis, with their weights.
    fn along(&self, axis: usize, x: f32) -> Vec<(Option<i64>, f64)> {
        let (texels, mode) = (self.extent[axis] as i64, self.options.address[axis]);
        if axis >= self.axes {
            return vec![(Some((x as i64).clamp(0, texels - 1)), 1.0)];
        }
        let scale = if self.options.normalized_coordinates { texels as f64 } else { 1.0 };
        let x = f64::from(x) * scale;
        if self.options.filter == FilterMode::Point {
            return vec![(beside(mode, x.floor() as i64, texels), 1.0)];
        }
        let low = (x - 0.5).floor();
        let weight = x - 0.5 - low;
        let at = |index: f64| beside(mode, index as i64, texels);
        vec![(at(low), 1.0 - weight), (at(low + 1.0), weight)]
    }

    /// Returns the value at a place.
    fn fetch(&self, place: [f32; 3]) -> f64 {
        let [x, y, z] = [0, 1, 2].map(|axis| self.along(axis, place[axis]));
        let mut sum = 0.0;
        for (k, z_weight) in &z {
            for (j, y_weight) in &y {
                for (i, x_weight) in &x {
                    let (Some(i), Some(j), Some(k)) = (i, j, k) else { continue };
                    let index = (*k as usize * self.extent[1] + *j as usize) * self.extent[0] + *i as usize;
                    sum += x_weight * y_weight * z_weight * f64::from(self.texels[index]);
                }
            }
        }
        sum
    }

    /// Compares what a device fetched with the formulas. A device may round weights to steps of 1/256 along each axis.
    fn check(&self, places: &[[f32; 3]], got: &[f32], what: &str) {
        let range = self.texels.iter().fold(0.0f32, |most, value| most.max(value.abs()));
        let step = if self.options.filter == FilterMode::Linear { self.axes as f64 / 256.0 } else { 0.0 };
        assert_eq!(places.len(), got.len());
        for (place, got) in places.iter().zip(got) {
            let want = self.fetch(*place);
            let near = (f64::from(*got) - want).abs() <= step * f64::from(range);
            assert!(near, "{what} at {place:?}: {got}, not {want} ({:?})", self.options);
        }
    }
}

/// Returns texels without a pattern, as multiples of an eighth.
fn texels(count: usize) -> Vec<f32> {
    (0..count as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 22) as f32 / 8.0).collect()
}

/// Returns coordinates inside and around an extent. They stay away from borders between texels, because a device may
/// round there either way.
fn places(extent: [usize; 3], normalized: bool, far: i64) -> Vec<[f32; 3]> {
    let along = |axis: usize, number: i64| {
        let texels = extent[axis] as f32;
        let x = number as f32 + [0.25, 0.375, 0.8125, 0.5][(number & 3) as usize];
        if normalized { x / texels } else { x }
    };
    let mut places = Vec::new();
    for number in -far..extent[0] as i64 + far {
        for other in -far..extent[1] as i64 + far {
            places.push([along(0, number), along(1, other), along(2, (number + other) % extent[2] as i64)]);
        }
    }
    places
}

fn flat(places: &[[f32; 3]], coordinates: usize) -> Vec<f32> {
    places.iter().flat_map(|place| place[..coordinates].to_vec()).collect()
}

/// Fetches from a texture of this many dimensions.
fn fetch(
    kernels: &Kernels,
    s: &Stream,
    texture: &Texture,
    dimensions: usize,
    places: &[[f32; 3]],
) -> Result<Vec<f32>> {
    let at = s.upload(&flat(places, dimensions))?;
    let mut out: Buffer<f32> = s.zeros(places.len())?;
    let n = places.len() as i32;
    match dimensions {
        1 => kernels.fetch_1d(s, texture, &at, &mut out, n)?,
        2 => kernels.fetch_2d(s, texture, &at, &mut out, n)?,
        _ => kernels.fetch_3d(s, texture, &at, &mut out, n)?,
    }
    s.download(&out)
}

const SHAPES: [(ArrayShape, usize); 4] = [
    (ArrayShape::new_1d(13), 1),
    (ArrayShape::new_2d(7, 5), 2),
    (ArrayShape::new_3d(6, 5, 4), 3),
    (ArrayShape::new_2d(1, 1), 2),
];

fn extent(shape: ArrayShape) -> [usize; 3] {
    [shape.width(), shape.height(), shape.slices()]
}

fn round_trip<T: Texel + PartialEq + std::fmt::Debug>(s: &Stream, value: impl Fn(usize) -> T) -> Result<()> {
    let layered = [ArrayShape::new_1d(9).layers(3), ArrayShape::new_2d(5, 3).layers(2)];
    for shape in SHAPES.map(|(shape, _)| shape).into_iter().chain(layered) {
        let [width, height, slices] = extent(shape);
        let values: Vec<T> = (0..width * height * slices).map(&value).collect();
        let array = s.upload_array(&values, shape)?;
        assert_eq!((array.shape(), array.len()), (shape, values.len()));
        assert_eq!(s.download_array(&array)?, values, "{shape:?}");
        let mut other = s.device().array(shape)?;
        s.copy_array(&array, &mut other)?;
        assert_eq!(s.download_array(&other)?, values, "{shape:?}");
    }
    Ok(())
}

fn arrays_bring_back_the_same_values(device: &Device) -> Result<()> {
    let s = device.stream()?;
    round_trip(&s, |i| i as u8)?;
    round_trip(&s, |i| i as i8)?;
    round_trip(&s, |i| (i * 300) as u16)?;
    round_trip(&s, |i| i as i16 - 50)?;
    round_trip(&s, |i| i as u32)?;
    round_trip(&s, |i| i as i32)?;
    round_trip(&s, |i| f16::from_f32(i as f32))?;
    round_trip(&s, |i| i as f32)?;
    round_trip(&s, |i| [i as u8, 1])?;
    round_trip(&s, |i| [i as u8, 1, 2, 3])?;
    round_trip(&s, |i| [i as i16; 2])?;
    round_trip(&s, |i| [f16::from_f32(i as f32), f16::ONE, f16::ZERO, f16::ONE])?;
    round_trip(&s, |i| [i as f32, -1.0])?;
    round_trip(&s, |i| [i as f32, -1.0, 0.5, 2.0])
}

fn points_and_weighted_means_of_every_shape_are_fetched(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    for (shape, axes) in SHAPES {
        let extent = extent(shape);
        let values = texels(extent.iter().product());
        let array = s.upload_array(&values, shape)?;
        for (filter, what) in [(FilterMode::Point, "a point"), (FilterMode::Linear, "a mean")] {
            for normalized in [false, true] {
                let options = TextureOptions::default().filter(filter).normalized_coordinates(normalized);
                let places = places(extent, normalized, 2);
                let got = fetch(&kernels, &s, &array.texture(options)?, axes, &places)?;
                Reference { texels: &values, extent, options, axes }.check(&places, &got, what);
            }
        }
    }
    Ok(())
}

fn every_address_mode_gives_its_value(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let (shape, axes) = (ArrayShape::new_2d(8, 4), 2);
    let extent = extent(shape);
    let values = texels(32);
    let array = s.upload_array(&values, shape)?;
    let modes = [AddressMode::Wrap, AddressMode::Clamp, AddressMode::Mirror, AddressMode::Border];
    for filter in [FilterMode::Point, FilterMode::Linear] {
        for x in modes {
            for y in modes {
                let options = TextureOptions::default()
                    .address_of_axes([x, y, AddressMode::Clamp])
                    .filter(filter)
                    .normalized_coordinates(true);
                let places = places(extent, true, 11);
                let got = fetch(&kernels, &s, &array.texture(options)?, axes, &places)?;
                Reference { texels: &values, extent, options, axes }.check(&places, &got, "beside");
            }
        }
    }
    Ok(())
}

fn layers_are_fetched_apart(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let options = TextureOptions::default().filter(FilterMode::Linear);
    for (shape, axes) in [(ArrayShape::new_1d(9).layers(3), 1), (ArrayShape::new_2d(5, 4).layers(3), 2)] {
        let extent = extent(shape);
        let values = texels(extent.iter().product());
        let texture = s.upload_array(&values, shape)?.texture(options)?;
        for layer in 0..3 {
            let mut places = places(extent, false, 1);
            for place in &mut places {
                place[2] = layer as f32;
            }
            let (at, n) = (s.upload(&flat(&places, axes))?, places.len() as i32);
            let mut out = s.zeros::<f32>(places.len())?;
            if axes == 1 {
                kernels.fetch_1d_layer(&s, &texture, layer, &at, &mut out, n)?;
            } else {
                kernels.fetch_2d_layer(&s, &texture, layer, &at, &mut out, n)?;
            }
            Reference { texels: &values, extent, options, axes }.check(
                &places,
                &s.download(&out)?,
                "a layer",
            );
        }
    }
    Ok(())
}

pub(crate) const IMAGE: ArrayShape = ArrayShape::new_2d(7, 3);

fn boxes_of_arrays_are_copied(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let shape = ArrayShape::new_3d(4, 3, 2);
    let mut array = s.upload_array(&[[0u16; 2]; 24], shape)?;
    let host = device.pinned_from(&(0..100u16).map(|i| [i, 1]).collect::<Vec<_>>())?;
    s.copy_box_to_array(&host, Pitched::new_3d(5, 4).at_plane(1, 1, 0), &mut array, [1, 0, 1], [3, 2, 1])?;
    let mut want = vec![[0u16; 2]; 24];
    for (y, x) in [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)] {
        want[12 + 4 * y + x + 1] = [(5 * (y + 1) + x + 1) as u16, 1];
    }
    assert_eq!(s.download_array(&array)?, want);
    let mut part = s.full(10, [9u16; 2])?;
    s.copy_box_from_array(&array, [2, 0, 1], &mut part, Pitched::new_2d(4).at(1, 0), [2, 2, 1])?;
    let nine = [9u16; 2];
    assert_eq!(
        s.download(&part)?,
        [nine, want[14], want[15], nine, nine, want[18], want[19], nine, nine, nine]
    );
    s.copy_box_to_array(&host, Pitched::new_2d(5), &mut array, [0; 3], [0, 1, 1])?;
    for (at, extent) in [([2, 0, 0], [3, 1, 1]), ([0, 3, 0], [1, 1, 1]), ([0, 0, usize::MAX], [1, 1, 1])] {
        let copied = s.copy_box_to_array(&host, Pitched::new_3d(5, 4), &mut array, at, extent);
        refused(copied, ErrorKind::OutOfBounds, &["is not inside an array of [4, 3, 2]"]);
    }
    let copied = s.copy_box_to_array(&host, Pitched::new_2d(2), &mut array, [0; 3], [3, 2, 1]);
    refused(copied, ErrorKind::InvalidArgument, &["rows would overlap"]);
    Ok(())
}

/// Uploads texels, lets a kernel fetch each of them, and compares.
fn fetched<T: Texel + PartialEq + std::fmt::Debug>(
    device: &Device,
    value: impl Fn(usize) -> T,
    launch: impl Fn(&Stream, &Texture, &mut Buffer<T>) -> Result<()>,
) -> Result<()> {
    let s = device.stream()?;
    let values: Vec<T> = (0..21).map(value).collect();
    let texture = s.upload_array(&values, IMAGE)?.texture(TextureOptions::default())?;
    let mut out = s.zeros::<T>(21)?;
    launch(&s, &texture, &mut out)?;
    assert_eq!(s.download(&out)?, values);
    Ok(())
}

fn every_type_of_texel_arrives(device: &Device) -> Result<()> {
    let kernels = Kernels::load(device)?;
    macro_rules! each {
        ($($value:expr),*) => {$(
            fetched(device, $value, |s, texture, out| kernels.texels(s, texture, out, 7, 3))?;
        )*};
    }
    each!(
        |i| i as u8 + 230,
        |i| i as i8 - 10,
        |i| i as u16 * 3000,
        |i| (i as i32 * 3000 - 32_000) as i16,
        |i| i as u32 * 200_000_000,
        |i| i as i32 * -100_000_000,
        |i| i as f32 * -0.3,
        |i| [i as u8, 255, 0, 7],
        |i| [i as i8, -128],
        |i| [i as i16, -3],
        |i| [i as u16, 65_535, 1, 2],
        |i| [i as i32, i32::MIN, -1, 0],
        |i| [i as u32, u32::MAX],
        |i| [i as f32, 0.5],
        |i| [i as f32, 0.5, -1.0, f32::MAX]
    );
    Ok(())
}

fn integers_are_read_as_normalised_numbers(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let options = TextureOptions::default().normalized_values(true);
    let check = |texture: &Texture, want: [f32; 21]| {
        let mut out = s.zeros::<f32>(21)?;
        kernels.texels(&s, texture, &mut out, 7, 3)?;
        for (got, want) in s.download(&out)?.into_iter().zip(want) {
            assert!((got - want).abs() < 1e-6, "{got}, not {want}");
        }
        Ok::<_, gpustream::Error>(())
    };
    let numbers = |i: usize, from: f32, to: f32| from + (to - from) * i as f32 / 20.0;
    let bytes: [u8; 21] = std::array::from_fn(|i| numbers(i, 0.0, 255.0) as u8);
    check(&s.upload_array(&bytes, IMAGE)?.texture(options)?, bytes.map(|v| f32::from(v) / 255.0))?;
    let bytes: [i8; 21] = std::array::from_fn(|i| numbers(i, -128.0, 127.0) as i8);
    let want = bytes.map(|v| (f32::from(v) / 127.0).max(-1.0));
    check(&s.upload_array(&bytes, IMAGE)?.texture(options)?, want)?;
    let words: [u16; 21] = std::array::from_fn(|i| numbers(i, 0.0, 65_535.0) as u16);
    check(&s.upload_array(&words, IMAGE)?.texture(options)?, words.map(|v| f32::from(v) / 65_535.0))?;
    let words: [i16; 21] = std::array::from_fn(|i| numbers(i, -32_768.0, 32_767.0) as i16);
    let want = words.map(|v| (f32::from(v) / 32_767.0).max(-1.0));
    check(&s.upload_array(&words, IMAGE)?.texture(options)?, want)?;
    // They can also be filtered.
    let options = options.filter(FilterMode::Linear);
    let values = bytes.map(|v| (f32::from(v) / 127.0).max(-1.0));
    let texture = s.upload_array(&bytes, IMAGE)?.texture(options)?;
    let places = places(extent(IMAGE), false, 1);
    let got = fetch(&kernels, &s, &texture, 2, &places)?;
    let options = TextureOptions::default().filter(FilterMode::Linear);
    Reference { texels: &values, extent: extent(IMAGE), options, axes: 2 }.check(&places, &got, "normalised");
    Ok(())
}

fn halves_are_filtered(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let values: Vec<f32> = (0..21).map(|i| (i * 7 % 21) as f32 * 0.25).collect();
    let halves: Vec<f16> = values.iter().map(|value| f16::from_f32(*value)).collect();
    let array = s.upload_array(&halves, IMAGE)?;
    for filter in [FilterMode::Point, FilterMode::Linear] {
        let options = TextureOptions::default().filter(filter);
        let places = places(extent(IMAGE), false, 1);
        let got = fetch(&kernels, &s, &array.texture(options)?, 2, &places)?;
        Reference { texels: &values, extent: extent(IMAGE), options, axes: 2 }.check(&places, &got, "a half");
    }
    Ok(())
}

fn linear_memory_is_fetched_by_number(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    macro_rules! each {
        ($($value:expr, $zero:expr;)*) => {$({
            let values = (0..300).map($value).collect::<Vec<_>>();
            let mut buffer = device.texel_buffer(300)?;
            s.upload_into(&values, &mut buffer)?;
            let mut out = s.full(302, values[7])?;
            kernels.elements(&s, &buffer.texture(TextureOptions::default())?, &mut out, 300)?;
            assert_eq!(s.download(&out)?, [&[$zero], &*values, &[$zero]].concat());
            assert_eq!(s.download(&buffer.slice(5..9)?)?, values[5..9]);
        })*};
    }
    each!(
        |i| i as u8, 0;
        |i: i32| 7 - i, 0;
        |i| i as f32, 0.0;
        |i| [i as f32, 1.0, 2.0, -3.0], [0.0; 4];
    );
    let mut bytes = device.texel_buffer::<u8>(3)?;
    s.upload_into(&[0, 51, 255], &mut bytes)?;
    let texture = bytes.texture(TextureOptions::default().normalized_values(true))?;
    let mut out = s.full(5, 9.0f32)?;
    kernels.elements(&s, &texture, &mut out, 3)?;
    assert_eq!(s.download(&out)?, [0.0, 0.0, 0.2, 1.0, 0.0]);
    Ok(())
}

/// One kernel writes through the buffer's address, and a later one fetches. They are on two streams, and then in a
/// graph.
fn linear_memory_is_written_between_fetches(device: &Device) -> Result<()> {
    let (kernels, a, b) = (Kernels::load(device)?, device.stream()?, device.stream()?);
    let source = a.upload_array(&[5.0f32; 21], IMAGE)?.texture(TextureOptions::default())?;
    let mut buffer = device.texel_buffer::<f32>(21)?;
    let texture = buffer.texture(TextureOptions::default())?;
    let mut out = b.zeros::<f32>(23)?;
    kernels.texels(&a, &source, &mut buffer, 7, 3)?;
    kernels.elements(&b, &texture, &mut out, 21)?;
    assert_eq!(b.download(&out)?[1..22], [5.0; 21]);
    let graph = a.capture(|s| {
        s.fill(&mut buffer, 6.0)?;
        kernels.elements(s, &texture, &mut out, 21)
    })?;
    drop((buffer, texture));
    graph.launch(&b)?;
    assert_eq!(b.download(&out)?[1..22], [6.0; 21]);
    Ok(())
}

fn a_write_and_a_fetch_of_one_memory_are_refused(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let mut buffer = device.texel_buffer::<f32>(23)?;
    s.fill(&mut buffer, 1.0)?;
    let texture = buffer.texture(TextureOptions::default())?;
    let both = kernels.elements(&s, &texture, &mut buffer, 21);
    refused(both, ErrorKind::InvalidArgument, &["elements", "through a texture or a surface"]);
    let part = kernels.elements(&s, &texture, &mut buffer.slice_mut(20..)?, 1);
    refused(part, ErrorKind::InvalidArgument, &["through a texture or a surface"]);
    assert_eq!(s.download(&buffer)?, [1.0; 23]);
    let linear = buffer.texture(TextureOptions::default().filter(FilterMode::Linear));
    refused(linear, ErrorKind::InvalidArgument, &["tex1Dfetch"]);
    let border = buffer.texture(TextureOptions::default().address(AddressMode::Border));
    refused(border, ErrorKind::InvalidArgument, &["tex1Dfetch"]);
    refused(device.texel_buffer::<u8>(0), ErrorKind::InvalidArgument, &["0 texels"]);
    refused(buffer.slice(..1)?.read().map(drop), ErrorKind::Unsupported, &["the host cannot reach"]);
    Ok(())
}

fn surfaces_of_every_shape_are_written(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let doubled = |values: &[f32]| values.iter().map(|value| 2.0 * value).collect::<Vec<_>>();
    let values = texels(24);
    let row = s.upload_array(&values, ArrayShape::new_1d(24))?;
    kernels.double_1d(&s, &mut row.surface()?, 24)?;
    assert_eq!(s.download_array(&row)?, doubled(&values));
    let volume = s.upload_array(&values, ArrayShape::new_3d(4, 3, 2))?;
    kernels.double_3d(&s, &mut volume.surface()?, 4, 3, 2)?;
    assert_eq!(s.download_array(&volume)?, doubled(&values));
    let layers = s.upload_array(&values, ArrayShape::new_2d(4, 3).layers(2))?;
    kernels.double_layer(&s, &mut layers.surface()?, 1, 4, 3)?;
    let want = [values[..12].to_vec(), doubled(&values[12..])].concat();
    assert_eq!(s.download_array(&layers)?, want);
    // One kernel writes through a surface, and a later one fetches the values.
    let (from, to) =
        (s.upload_array(&values, ArrayShape::new_2d(6, 4))?, device.array::<f32>(ArrayShape::new_2d(6, 4))?);
    kernels.transfer(&s, &from.texture(TextureOptions::default())?, &mut to.surface()?, 6, 4)?;
    kernels.add_two(&s, &mut to.surface()?, 6, 4)?;
    let mut out = s.zeros::<f32>(24)?;
    kernels.texels(&s, &to.texture(TextureOptions::default())?, &mut out, 6, 4)?;
    assert_eq!(s.download(&out)?, values.iter().map(|value| value + 2.0).collect::<Vec<_>>());
    Ok(())
}

fn every_type_of_texel_is_stored(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    macro_rules! each {
        ($($value:expr),*) => {$({
            let values = (0..21).map($value).collect::<Vec<_>>();
            // The array has the same type but other values.
            let array = s.upload_array(&[values[20]; 21], IMAGE)?;
            kernels.store(&s, &mut array.surface()?, &s.upload(&values)?, 7, 3)?;
            assert_eq!(s.download_array(&array)?, values);
        })*};
    }
    each!(|i| i as u8, |i| [i as u8, 1, 2, 255], |i| [i as i16, -i as i16], |i| i as f32, |i| [
        i as f32, 1.5, -2.0, 0.0
    ]);
    Ok(())
}

fn boundary_modes_decide_what_lies_outside(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let array = s.upload_array(&[3.0f32, 4.0, 5.0], ArrayShape::new_1d(3))?;
    let (mut zero, mut clamped) = (s.full(5, 9.0f32)?, s.full(5, 9.0f32)?);
    kernels.edges(&s, &mut array.surface()?, &mut zero, &mut clamped, 3)?;
    assert_eq!(s.download(&zero)?, [0.0, 3.0, 4.0, 5.0, 0.0]);
    let at_the_edge =
        if device.info().backend == gpustream::BackendName::HIP { [0.0, 0.0] } else { [3.0, 5.0] };
    assert_eq!(s.download(&clamped)?, [at_the_edge[0], 3.0, 4.0, 5.0, at_the_edge[1]]);
    assert_eq!(s.download_array(&array)?, [3.0, 4.0, 5.0]);
    Ok(())
}

fn a_store_beside_a_surface_ends_the_kernel(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let array = s.upload_array(&[1.0f32; 21], IMAGE)?;
    let mut surface = array.surface()?;
    // SAFETY: the kernel touches the surface alone.
    unsafe { kernels.write_one(&s, &ONE, &mut surface, 2.0, 6, 2)? };
    assert_eq!(s.download_array(&array)?[20], 2.0);
    // SAFETY: the kernel touches the surface alone; beside the surface nothing is written.
    unsafe { kernels.write_one(&s, &ONE, &mut surface, 2.0, 7, 2)? };
    if device.info().backend == gpustream::BackendName::HIP {
        return s.synchronize();
    }
    let said = if device.info().backend == gpustream::BackendName::CPU {
        &["surf2Dwrite", "beside the surface"][..]
    } else {
        &[]
    };
    refused(s.synchronize(), ErrorKind::DeviceLost, said);
    Ok(())
}

fn a_fetch_of_another_type_ends_the_kernel(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let texture = s.upload_array(&[1u8; 21], IMAGE)?.texture(TextureOptions::default())?;
    let mut out = s.zeros::<f32>(21)?;
    kernels.texels(&s, &texture, &mut out, 7, 3)?;
    refused(s.synchronize(), ErrorKind::DeviceLost, &["tex2D", "type unsigned char", "reads another type"]);
    Ok(())
}
