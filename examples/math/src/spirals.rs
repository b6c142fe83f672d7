//! What the network learns, and what it begins with.

/// Returns points on two spirals, and the side of each: -1 or 1.
pub fn spirals(points: usize) -> (Vec<f32>, Vec<f32>) {
    let place = |i: usize| {
        let (along, side) = ((i / 2) as f32 / (points / 2) as f32, (i % 2) as f32);
        let (angle, radius) = (std::f32::consts::PI * (2.5 * along + side), 0.15 + 0.85 * along);
        [radius * angle.cos() + 0.02 * noise(2 * i), radius * angle.sin() + 0.02 * noise(2 * i + 1)]
    };
    ((0..points).flat_map(place).collect(), (0..points).map(|i| (i % 2) as f32 * 2.0 - 1.0).collect())
}

/// Returns the weights that a layer begins with: inputs × outputs of them, and then a 0 for each output.
pub fn first_weights(inputs: usize, outputs: usize) -> Vec<f32> {
    let (n, scale) = ((inputs + 1) * outputs, 1.5 / (inputs as f32).sqrt());
    (0..n).map(|i| if i < inputs * outputs { scale * noise(i + n) } else { 0.0 }).collect()
}

/// Returns number `i` of numbers between -1 and 1 that look random.
fn noise(i: usize) -> f32 {
    let z = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (z >> 40) as f32 / (1 << 23) as f32 - 1.0
}
