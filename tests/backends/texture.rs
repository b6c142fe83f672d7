//! Arrays, textures and surfaces.

use gpustream_hal::{
    AddressMode, ArrayShape, Channel, Copy3d, CopyEnd, Device, FilterMode, PinnedOptions, RawArray,
    RawBuffer, TexelFormat, TextureOptions, TextureSource,
};

use super::{assert_one, start, stream};

const F32: TexelFormat = TexelFormat { channel: Channel::F32, channels: 1 };
const BYTES: TexelFormat = TexelFormat { channel: Channel::U8, channels: 4 };

const LAYERED: u32 = 1;
const STORED: u32 = 2;

fn destroy(device: &dyn Device, array: RawArray) {
    // SAFETY: nothing uses the array.
    unsafe { device.array_destroy(array) }.unwrap();
}

#[test]
fn arrays_have_the_extents_that_were_asked_for() {
    let (recorder, device) = start();
    let before = recorder.live();
    for (shape, extents, flags) in [
        (ArrayShape::new_1d(7), [7, 0, 0], STORED),
        (ArrayShape::new_2d(7, 5), [7, 5, 0], STORED),
        (ArrayShape::new_3d(7, 5, 3), [7, 5, 3], STORED),
        (ArrayShape::new_1d(7).layers(4), [7, 0, 4], STORED | LAYERED),
        (ArrayShape::new_2d(7, 5).layers(4), [7, 5, 4], STORED | LAYERED),
    ] {
        let (array, calls) = recorder.record(|| device.array_create(shape, BYTES).unwrap());
        assert_one(&calls, ["cuArray3DCreate_v2", "hipArray3DCreate"], &[]);
        let made = recorder.array(array.0).unwrap();
        assert_eq!([made.width, made.height, made.depth], extents, "{shape:?}");
        assert_eq!((made.format, made.channels, made.flags), (1, 4, flags), "{shape:?}");
        let ((), calls) = recorder.record(|| destroy(&*device, array));
        assert_one(&calls, ["cuArrayDestroy", "hipArrayDestroy"], &[("array", array.0 as u64)]);
    }
    for (channel, format) in [
        (Channel::U8, 1),
        (Channel::U16, 2),
        (Channel::U32, 3),
        (Channel::I8, 8),
        (Channel::I16, 9),
        (Channel::I32, 10),
        (Channel::F16, 16),
        (Channel::F32, 32),
    ] {
        let array = device.array_create(ArrayShape::new_1d(1), TexelFormat { channel, channels: 2 }).unwrap();
        let made = recorder.array(array.0).unwrap();
        assert_eq!((made.format, made.channels), (format, 2), "{channel:?}");
        destroy(&*device, array);
    }
    assert_eq!(recorder.live(), before);
}

#[test]
fn textures_have_the_options_that_were_asked_for() {
    const AS_INTEGERS: u32 = 1;
    const NORMALIZED: u32 = 2;

    let (recorder, device) = start();
    let [bytes, floats] =
        [BYTES, F32].map(|format| device.array_create(ArrayShape::new_2d(4, 4), format).unwrap());
    let options = TextureOptions::default();
    let axes = [AddressMode::Wrap, AddressMode::Mirror, AddressMode::Border];
    for (array, format, options, address, filter, flags) in [
        (bytes, BYTES, options, [1, 1, 1], 0, AS_INTEGERS),
        (bytes, BYTES, options.normalized_values(true).filter(FilterMode::Linear), [1, 1, 1], 1, 0),
        (floats, F32, options, [1, 1, 1], 0, 0),
        (floats, F32, options.normalized_coordinates(true).address_of_axes(axes), [0, 2, 3], 0, NORMALIZED),
    ] {
        let source = TextureSource::Array(array);
        // SAFETY: the array is alive and of this format.
        let create = || unsafe { device.texture_create(source, format, &options) }.unwrap();
        let (texture, calls) = recorder.record(create);
        assert_one(&calls, ["cuTexObjectCreate", "hipTexObjectCreate"], &[("view", 0)]);
        let made = recorder.object(texture.0).unwrap();
        assert_eq!((made.resource.kind, made.resource.memory), (0, array.0));
        let made = made.texture.unwrap();
        assert_eq!((made.address, made.filter, made.flags), (address, filter, flags), "{options:?}");
        // SAFETY: nothing uses the texture.
        let ((), calls) = recorder.record(|| unsafe { device.texture_destroy(texture) }.unwrap());
        let handle = [("texture", texture.0 as u64)];
        assert_one(&calls, ["cuTexObjectDestroy", "hipTexObjectDestroy"], &handle);
    }
    destroy(&*device, bytes);
    destroy(&*device, floats);
}

#[test]
fn textures_of_linear_memory_name_its_texels() {
    let (recorder, device) = start();
    let source = TextureSource::Linear { buffer: RawBuffer(0x5000), bytes: 96 };
    let format = TexelFormat { channel: Channel::I16, channels: 4 };
    // SAFETY: nothing fetches from the texture.
    unsafe {
        let texture = device.texture_create(source, format, &TextureOptions::default()).unwrap();
        let made = recorder.object(texture.0).unwrap().resource;
        assert_eq!((made.kind, made.memory, made.format, made.channels, made.bytes), (2, 0x5000, 9, 4, 96));
        device.texture_destroy(texture).unwrap();
    }
}

#[test]
fn surfaces_are_of_their_array() {
    let (recorder, device) = start();
    let array = device.array_create(ArrayShape::new_2d(4, 4), F32).unwrap();
    // SAFETY: the array is alive, and nothing uses the surface.
    unsafe {
        let (surface, calls) = recorder.record(|| device.surface_create(array).unwrap());
        assert_one(&calls, ["cuSurfObjectCreate", "hipCreateSurfaceObject"], &[]);
        let made = recorder.object(surface.0).unwrap();
        assert_eq!((made.resource.kind, made.resource.memory, made.texture), (0, array.0, None));
        let ((), calls) = recorder.record(|| device.surface_destroy(surface).unwrap());
        let handle = [("surface", surface.0 as u64)];
        assert_one(&calls, ["cuSurfObjectDestroy", "hipDestroySurfaceObject"], &handle);
    }
    destroy(&*device, array);
}

/// We copy two rows of three texels into the second plane of an array, and back.
#[test]
fn copies_reach_the_texels_that_they_name() {
    let (recorder, device) = start();
    let stream = stream(&*device);
    let array = device.array_create(ArrayShape::new_3d(5, 4, 2), BYTES).unwrap();
    let host = device.pinned_alloc(64, PinnedOptions::default()).unwrap();
    let back = device.pinned_alloc(160, PinnedOptions::default()).unwrap();
    // SAFETY: 64 bytes, and no copy uses them yet.
    let bytes = unsafe { std::slice::from_raw_parts_mut(host, 64) };
    bytes.iter_mut().enumerate().for_each(|(i, byte)| *byte = i as u8 + 1);
    let end = |at| CopyEnd::Array { array, texel: 4, at };
    let whole = Copy3d {
        dst: CopyEnd::Host(back),
        dst_pitch: 20,
        dst_rows: 4,
        src: end([0; 3]),
        src_pitch: 0,
        src_rows: 0,
        width: 20,
        height: 4,
        depth: 2,
    };
    let clear = Copy3d {
        dst: whole.src,
        dst_pitch: 0,
        dst_rows: 0,
        src: whole.dst,
        src_pitch: 20,
        src_rows: 4,
        ..whole
    };
    let part = Copy3d {
        dst: end([1, 2, 1]),
        dst_pitch: 0,
        dst_rows: 0,
        src: CopyEnd::Host(host),
        src_pitch: 16,
        src_rows: 2,
        width: 12,
        height: 2,
        depth: 1,
    };
    // SAFETY: all ranges are allocated, and the stream is waited for before the host looks.
    unsafe {
        std::slice::from_raw_parts_mut(back, 160).fill(0);
        device.copy_3d(&clear, stream).unwrap();
        let ((), calls) = recorder.record(|| device.copy_3d(&part, stream).unwrap());
        assert_one(&calls, ["cuMemcpy3DAsync_v2", "hipMemcpy3DAsync"], &[("stream", stream.0 as u64)]);
        device.copy_3d(&whole, stream).unwrap();
        device.stream_synchronize(stream).unwrap();
        for (i, &byte) in std::slice::from_raw_parts(back, 160).iter().enumerate() {
            let (plane, row, column) = (i / 80, i / 20 % 4, i % 20);
            let inside = plane == 1 && row >= 2 && (4..16).contains(&column);
            let expected = if inside { (row - 2) * 16 + column - 4 + 1 } else { 0 };
            assert_eq!(usize::from(byte), expected, "byte {i}");
        }
        device.pinned_free(host).unwrap();
        device.pinned_free(back).unwrap();
        device.stream_destroy(stream).unwrap();
    }
    destroy(&*device, array);
}
