//! Textures are ordered and kept like other memory.

use conformance::textures::Kernels;
use conformance::{
    Gate, assert_all, kernels_and_streams, on_threads, open_again, refused, tests, with_stream,
};
use gpustream::{
    AddressMode, Array, ArrayShape, Buffer, Device, DeviceOptions, ErrorKind, FilterMode, Result, Stream,
    Texture, TextureOptions, Tracking,
};

use crate::multi_device::{has_others, two_devices};
use crate::textures::{IMAGE, has_textures};

tests! {
    Plain if has_textures: a_fetch_waits_for_a_write_elsewhere, a_write_waits_for_a_fetch_elsewhere,
        strict_order_is_checked_for_textures, dropped_textures_finish_their_work,
        graphs_keep_arrays_and_textures, nodes_copy_to_arrays, replayed_steps_fetch_the_new_values,
        threads_write_and_fetch_one_array, textures_of_another_handle_work_and_outlive_it,
        a_forgotten_texture_breaks_nothing, a_surface_and_a_texture_of_one_array_are_refused,
        nonsense_is_refused;
    Several if has_others, has_textures: textures_stay_on_their_device;
}

/// Returns what a kernel fetches from a texture.
fn sampled(kernels: &Kernels, s: &Stream, texture: &Texture) -> Result<Buffer<f32>> {
    let mut out = s.zeros::<f32>(21)?;
    kernels.texels(s, texture, &mut out, 7, 3)?;
    Ok(out)
}

fn a_fetch_waits_for_a_write_elsewhere(device: &Device) -> Result<()> {
    let kernels = Kernels::load(device)?;
    let (waiting, [a, b]) = kernels_and_streams(device)?;
    let mut array = a.upload_array(&[1.0f32; 21], IMAGE)?;
    let texture = array.texture(TextureOptions::default())?;
    let (new, mut out) = (a.full(21, 2.0f32)?, b.zeros::<f32>(21)?);
    conformance::synchronize(device)?;
    let gate = Gate::on(&waiting, &a)?;
    a.copy_to_array(&new, &mut array)?;
    kernels.texels(&b, &texture, &mut out, 7, 3)?;
    assert!(!b.is_done()?, "the fetch waits for the copy");
    gate.open();
    assert_eq!(b.download(&out)?, [2.0; 21]);
    // A download must also wait for a kernel that writes through a surface.
    let mut surface = array.surface()?;
    let gate = Gate::on(&waiting, &a)?;
    kernels.add_two(&a, &mut surface, 7, 3)?;
    let values = gate.open_during(|| b.download_array(&array))?;
    assert_eq!(values, [4.0; 21]);
    Ok(())
}

fn a_write_waits_for_a_fetch_elsewhere(device: &Device) -> Result<()> {
    let kernels = Kernels::load(device)?;
    let (waiting, [a, b]) = kernels_and_streams(device)?;
    let mut array = a.upload_array(&[1.0f32; 21], IMAGE)?;
    let texture = array.texture(TextureOptions::default())?;
    let (new, mut out) = (b.full(21, 2.0f32)?, a.zeros::<f32>(21)?);
    conformance::synchronize(device)?;
    let gate = Gate::on(&waiting, &a)?;
    kernels.texels(&a, &texture, &mut out, 7, 3)?;
    b.copy_to_array(&new, &mut array)?;
    assert!(!b.is_done()?, "the copy waits for the fetch");
    gate.open();
    assert_eq!(a.download(&out)?, [1.0; 21]);
    assert_eq!(a.download_array(&array)?, [2.0; 21]);
    Ok(())
}

fn strict_order_is_checked_for_textures(device: &Device) -> Result<()> {
    let device = open_again(device, DeviceOptions::default().tracking(Tracking::Strict))?;
    let kernels = Kernels::load(&device)?;
    let (a, b) = (device.stream()?, device.stream()?);
    let mut array = device.array::<f32>(IMAGE)?;
    let texture = array.texture(TextureOptions::default())?;
    let (new, mut out) = (a.full(21, 2.0f32)?, b.zeros::<f32>(21)?);
    a.copy_to_array(&new, &mut array)?;
    let fetched = kernels.texels(&b, &texture, &mut out, 7, 3);
    refused(fetched, ErrorKind::Hazard, &["texels", "copy_to_array"]);
    b.wait(&a.record()?)?;
    kernels.texels(&b, &texture, &mut out, 7, 3)?;
    assert_all(&b, &out, 2.0)
}

fn dropped_textures_finish_their_work(device: &Device) -> Result<()> {
    let kernels = Kernels::load(device)?;
    let (waiting, [s]) = kernels_and_streams(device)?;
    let mut outs = Vec::new();
    let rounds = (0..20u8).map(|round| {
        let array = device.array::<f32>(IMAGE)?;
        let (texture, surface) = (array.texture(TextureOptions::default())?, array.surface()?);
        Ok((round, s.full(21, f32::from(round))?, s.zeros::<f32>(21)?, array, texture, surface))
    });
    let rounds = rounds.collect::<Result<Vec<_>>>()?;
    conformance::synchronize(device)?;
    let gate = Gate::on(&waiting, &s)?;
    for (round, values, mut out, mut array, texture, mut surface) in rounds {
        s.copy_to_array(&values, &mut array)?;
        if round % 2 == 0 {
            drop(array);
        } else {
            kernels.add_two(&s, &mut surface, 7, 3)?;
        }
        kernels.texels(&s, &texture.clone(), &mut out, 7, 3)?;
        outs.push(out);
    }
    gate.open();
    // If an array had been freed too early, one of these would get its memory.
    let others = (0..20).map(|_| s.upload_array(&[9.0f32; 21], IMAGE)).collect::<Result<Vec<_>>>()?;
    for (round, out) in outs.iter().enumerate() {
        let added = if round % 2 == 0 { 0.0 } else { 2.0 };
        assert_eq!(s.download(out)?, [round as f32 + added; 21]);
    }
    for other in &others {
        assert_eq!(s.download_array(other)?, [9.0; 21]);
    }
    Ok(())
}

fn graphs_keep_arrays_and_textures(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let (mut values, mut out) = (s.full(21, 1.0f32)?, s.zeros::<f32>(21)?);
    let graph = s.capture(|s| {
        let mut array = device.array::<f32>(IMAGE)?;
        s.copy_to_array(&values, &mut array)?;
        kernels.add_two(s, &mut array.surface()?, 7, 3)?;
        kernels.texels(s, &array.texture(TextureOptions::default())?, &mut out, 7, 3)
    })?;
    for round in 1..4u8 {
        s.fill(&mut values, f32::from(round))?;
        // If an array had been freed too early, one of these would get its place.
        let others = (0..3).map(|_| s.upload_array(&[9.0f32; 21], IMAGE)).collect::<Result<Vec<_>>>()?;
        graph.launch(&s)?;
        assert_eq!(s.download(&out)?, [f32::from(round) + 2.0; 21]);
        for other in &others {
            assert_eq!(s.download_array(other)?, [9.0; 21]);
        }
    }
    drop(graph);
    refused(
        s.capture(|s| s.upload_array(&[1.0f32; 21], IMAGE).map(drop)).map(drop),
        ErrorKind::Captured,
        &[],
    );
    Ok(())
}

fn nodes_copy_to_arrays(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let (one, two) = (s.full(21, 1.0f32)?, s.full(21, 2.0f32)?);
    let mut out = s.zeros::<f32>(21)?;
    let mut array = s.upload_array(&[0.0f32; 21], IMAGE)?;
    let mut builder = device.graph_builder()?;
    let node = builder.node(&[], |s| s.copy_to_array(&one, &mut array))?;
    let texture = array.texture(TextureOptions::default())?;
    builder.node(&[node], |s| kernels.texels(s, &texture, &mut out, 7, 3))?;
    let mut graph = builder.build()?;
    graph.launch(&s)?;
    assert_eq!(s.download(&out)?, [1.0; 21]);
    match graph.set_node(node, |s| s.copy_to_array(&two, &mut array)) {
        Ok(()) => {
            drop((array, texture, one));
            graph.launch(&s)?;
            assert_eq!(s.download(&out)?, [2.0; 21]);
        }
        // Drivers cannot set a copy of several dimensions in an existing graph.
        Err(error) => assert_ne!(device.info().backend, gpustream::BackendName::CPU, "{error}"),
    }
    Ok(())
}

fn replayed_steps_fetch_the_new_values(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let (mut values, mut out) = (s.zeros::<f32>(21)?, s.zeros::<f32>(21)?);
    let mut arrays = [device.array::<f32>(IMAGE)?, device.array::<f32>(IMAGE)?];
    let mut step = device.replay();
    for round in 0..12u8 {
        // After the seventh round we use another array. The options change back and forth.
        let array = &mut arrays[usize::from(round > 6)];
        let filter = if round % 3 == 2 { FilterMode::Linear } else { FilterMode::Point };
        step.run(&s, |s| {
            s.fill(&mut values, f32::from(round))?;
            s.copy_to_array(&values, array)?;
            kernels.add_two(s, &mut array.surface()?, 7, 3)?;
            kernels.texels(s, &array.texture(TextureOptions::default().filter(filter))?, &mut out, 7, 3)
        })?;
        assert_eq!(s.download(&out)?, [f32::from(round) + 2.0; 21], "round {round}");
    }
    Ok(())
}

/// An array may be used while textures refer to it. So two threads can write one array at once, without a borrow
/// between them.
fn threads_write_and_fetch_one_array(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let array = s.upload_array(&[0.0f32; 21], IMAGE)?;
    let texture = array.texture(TextureOptions::default())?;
    on_threads(4, |thread| {
        let s = device.stream()?;
        let mut surface = array.surface()?;
        for round in 0..50u32 {
            if (thread + round).is_multiple_of(2) {
                kernels.add_two(&s, &mut surface, 7, 3)?;
            } else {
                let values = s.download(&sampled(&kernels, &s, &texture)?)?;
                assert!(values.iter().all(|value| *value == values[0]), "a write in between: {values:?}");
            }
        }
        s.synchronize()
    })?;
    assert_eq!(s.download_array(&array)?, [200.0; 21]);
    Ok(())
}

fn textures_of_another_handle_work_and_outlive_it(device: &Device) -> Result<()> {
    let kernels = Kernels::load(device)?;
    let (waiting, [s]) = kernels_and_streams(device)?;
    let other = open_again(device, DeviceOptions::default())?;
    let theirs = other.stream()?;
    let array = theirs.upload_array(&[3.0f32; 21], IMAGE)?;
    let texture = array.texture(TextureOptions::default())?;
    theirs.synchronize()?;
    let mut out = s.zeros::<f32>(21)?;
    let gate = Gate::on(&waiting, &s)?;
    kernels.texels(&s, &texture, &mut out, 7, 3)?;
    let graph = s.capture(|s| kernels.texels(s, &texture, &mut out, 7, 3))?;
    let closing = std::thread::spawn(move || drop((texture, array, theirs, other)));
    gate.open();
    closing.join().unwrap();
    assert_eq!(s.download(&out)?, [3.0; 21]);
    s.fill(&mut out, 0.0)?;
    graph.launch(&s)?;
    assert_all(&s, &out, 3.0)
}

fn a_forgotten_texture_breaks_nothing(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let array = s.upload_array(&[3.0f32; 21], IMAGE)?;
    let out = sampled(&kernels, &s, &array.texture(TextureOptions::default())?)?;
    std::mem::forget((array.texture(TextureOptions::default())?, array.surface()?));
    assert_all(&s, &out, 3.0)
}

fn a_surface_and_a_texture_of_one_array_are_refused(device: &Device) -> Result<()> {
    let (kernels, s) = with_stream(device, Kernels::load)?;
    let array = s.upload_array(&[1.0f32; 21], IMAGE)?;
    let texture = array.texture(TextureOptions::default())?;
    let both = kernels.transfer(&s, &texture, &mut array.surface()?, 7, 3);
    refused(both, ErrorKind::InvalidArgument, &["transfer", "through a texture or a surface"]);
    assert_eq!(s.download_array(&array)?, [1.0; 21]);
    Ok(())
}

fn nonsense_is_refused(device: &Device) -> Result<()> {
    let s = device.stream()?;
    for shape in [
        ArrayShape::new_1d(0),
        ArrayShape::new_2d(4, 0),
        ArrayShape::new_3d(0, 1, 1),
        ArrayShape::new_2d(4, 4).layers(0),
    ] {
        refused(device.array::<f32>(shape), ErrorKind::InvalidArgument, &["is empty"]);
        refused(s.upload_array::<f32>(&[], shape), ErrorKind::InvalidArgument, &["is empty"]);
    }
    let layered = ArrayShape::new_3d(2, 2, 2).layers(2);
    refused(device.array::<f32>(layered), ErrorKind::InvalidArgument, &["layers of three dimensions"]);
    let huge = ArrayShape::new_3d(usize::MAX, 2, 2);
    refused(device.array::<u8>(huge), ErrorKind::OutOfMemory, &["address space"]);
    refused(s.upload_array(&[1u8; 3], IMAGE), ErrorKind::ArgumentMismatch, &["3 elements", "21"]);
    let (unwritten, mut bytes) = (device.array::<u8>(IMAGE)?, s.upload_array(&[1u8; 21], IMAGE)?);
    refused(s.download_array(&unwritten), ErrorKind::Uninitialized, &[]);
    let mut other = device.array::<u8>(ArrayShape::new_2d(3, 7))?;
    refused(s.copy_array(&bytes, &mut other), ErrorKind::ArgumentMismatch, &["different shapes"]);
    refused(s.copy_array(&unwritten, &mut bytes), ErrorKind::Uninitialized, &[]);
    let short = s.zeros::<u8>(20)?;
    refused(s.copy_to_array(&short, &mut bytes), ErrorKind::ArgumentMismatch, &["20 elements"]);
    let of = |options| bytes.texture(options);
    let options = TextureOptions::default();
    refused(of(options.filter(FilterMode::Linear)), ErrorKind::InvalidArgument, &["normalized_values"]);
    refused(of(options.address(AddressMode::Wrap)), ErrorKind::InvalidArgument, &["normalized_coordinates"]);
    let numbers: Array<f32> = device.array(IMAGE)?;
    let values = numbers.texture(options.normalized_values(true));
    refused(values, ErrorKind::InvalidArgument, &["`f32`", "8 or 16 bits"]);
    let wide: Array<i32> = device.array(IMAGE)?;
    let values = wide.texture(options.normalized_values(true));
    refused(values, ErrorKind::InvalidArgument, &["`i32`", "8 or 16 bits"]);
    Ok(())
}

fn textures_stay_on_their_device(device: &Device) -> Result<()> {
    let [first, second] = &two_devices(device);
    let (kernels, s) = with_stream(second, Kernels::load)?;
    let mut array = first.stream()?.upload_array(&[1.0f32; 21], IMAGE)?;
    let mut out = s.zeros::<f32>(21)?;
    let fetched = kernels.texels(&s, &array.texture(TextureOptions::default())?, &mut out, 7, 3);
    refused(fetched, ErrorKind::DeviceMismatch, &["cannot reach"]);
    refused(kernels.add_two(&s, &mut array.surface()?, 7, 3), ErrorKind::DeviceMismatch, &["cannot reach"]);
    refused(s.copy_to_array(&out, &mut array), ErrorKind::DeviceMismatch, &["cannot reach"]);
    refused(s.download_array(&array), ErrorKind::DeviceMismatch, &["cannot reach"]);
    Ok(())
}
