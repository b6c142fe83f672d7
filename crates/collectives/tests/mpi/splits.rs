//! Communicators of some of the ranks.

use gpustream_collectives::Op;

use crate::{rank, tests};

tests!(colors_make_communicators_in_the_order_of_keys, parts_work_beside_the_whole,);

fn colors_make_communicators_in_the_order_of_keys() {
    let rank = rank();
    let own = rank.rank();
    let place = |color, key| {
        let part = rank.split(color, key).unwrap();
        (part.rank(), part.size())
    };
    assert_eq!(place(0, -(own as i32)), (3 - own, 4));
    assert_eq!(place(i32::MAX as u32, 7), (own, 4));
    assert_eq!(place(own as u32 % 2, 0), (own / 2, 2));
    assert_eq!(place(own as u32, 0), (0, 1));
}

fn parts_work_beside_the_whole() {
    let rank = rank();
    let half = rank.split(rank.rank() as u32 / 2, 0).unwrap();
    let pair = half.split(0, 0).unwrap();
    let stream = rank.device().stream().unwrap();
    let mut sums = [(); 3].map(|()| stream.full(1001, rank.rank() as f32).unwrap());
    let [whole, part, again] = &mut sums;
    rank.all_reduce_in_place(&stream, whole, Op::Sum).unwrap();
    half.all_reduce_in_place(&stream, part, Op::Sum).unwrap();
    pair.all_reduce_in_place(&stream, again, Op::Average).unwrap();
    // Enqueued work goes on, and a part outlives the whole.
    drop(rank);
    drop(half);
    let of_half = if stream.download(&sums[1]).unwrap()[0] < 2.0 { 1.0 } else { 5.0 };
    assert_eq!(stream.download(&sums[0]).unwrap(), [6.0; 1001]);
    assert_eq!(stream.download(&sums[1]).unwrap(), [of_half; 1001]);
    assert_eq!(stream.download(&sums[2]).unwrap(), [of_half / 2.0; 1001]);
    pair.barrier(&stream).unwrap();
    stream.synchronize().unwrap();
}
