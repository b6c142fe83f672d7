//! The real NCCL. You need at least one GPU for this.

use gpustream::DeviceOptions;
use gpustream_collectives::{Op, World, group};

use crate::{LONG, devices, options, tests};

tests!(world_of_one_is_right, closed_communicators_leave_nothing_behind);

fn world_of_one_is_right() {
    let device = &devices(DeviceOptions::default())[0];
    let rank = World::alone().communicator_with(device, options(LONG)).unwrap();
    let stream = device.stream().unwrap();
    let mut memory = stream.upload(&[1.5f32, -2.0, 3.25]).unwrap();
    rank.all_reduce_in_place(&stream, &mut memory, Op::Average).unwrap();
    let mut copies = stream.alloc::<f32>(3).unwrap();
    rank.all_gather(&stream, &memory, &mut copies).unwrap();
    let (mut received, mut exchanged) = (stream.alloc::<f32>(3).unwrap(), stream.alloc::<f32>(3).unwrap());
    rank.group(|calls| {
        calls.send(&stream, &copies, 0)?;
        calls.recv(&stream, &mut received, 0)
    })
    .unwrap();
    rank.all_to_all(&stream, &received, &mut exchanged).unwrap();
    rank.barrier(&stream).unwrap();
    assert_eq!(stream.download(&exchanged).unwrap(), [1.5, -2.0, 3.25]);
    let part = rank.split(3, 0).unwrap();
    assert_eq!((part.rank(), part.size()), (0, 1));
}

fn closed_communicators_leave_nothing_behind() {
    let device = &devices(DeviceOptions::default())[0];
    let stream = device.stream().unwrap();
    for round in 0..5u32 {
        let rank = World::alone().communicator_with(device, options(LONG)).unwrap();
        let mut memory = stream.full(1 << 20, round).unwrap();
        group(|group| group.on(&rank).all_reduce_in_place(&stream, &mut memory, Op::Sum)).unwrap();
        drop(rank);
        assert_eq!(stream.download(&memory).unwrap(), vec![round; 1 << 20]);
    }
}
