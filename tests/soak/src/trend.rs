//! Decides whether a quantity grows.
//!
//! The first half of a run is for warming up, because caches fill and pools find their size. We say that a quantity
//! grows if it rises within the second half, and if the second half is also above the first. All figures are medians,
//! because a single sample can jump: a device may just be open, or a child may be running.

/// What the samples say about a quantity.
pub(crate) struct Trend {
    /// The median of each half.
    pub(crate) halves: [f64; 2],
    /// How much the quantity grew in the second half: the median of the slopes between any two samples (Theil and Sen),
    /// times the length of the half.
    pub(crate) growth: f64,
    /// Growth within the second half that we still ignore.
    pub(crate) limit: f64,
}

impl Trend {
    /// Judges samples that were taken at equal intervals. We ignore growth up to `floor`, or up to a fiftieth of the
    /// first half's median if that is more.
    pub(crate) fn of(values: &[f64], floor: f64) -> Self {
        let (first, second) = values.split_at(values.len() / 2);
        let halves = [median(first.to_vec()), median(second.to_vec())];
        let slopes = second.iter().enumerate().flat_map(|(i, early)| {
            let later = second.iter().enumerate().skip(i + 1);
            later.map(move |(j, late)| (late - early) / (j - i) as f64)
        });
        let growth = median(slopes.collect()) * second.len().saturating_sub(1) as f64;
        Self { halves, growth, limit: floor.max(halves[0] / 50.0) }
    }

    pub(crate) fn grows(&self) -> bool {
        self.growth > self.limit && self.halves[1] - self.halves[0] > self.limit / 2.0
    }
}

/// Returns the median, or zero if there are no values.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::Trend;

    /// Samples of a quantity that jumps by up to `noise`, the same way in each run.
    fn samples(noise: f64, at: impl Fn(f64) -> f64) -> Vec<f64> {
        let mut state = 1_u32;
        let mut random = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f64::from(state >> 8) / f64::from(1 << 24) * noise
        };
        (0..600).map(|i| at(f64::from(i) / 600.0) + random()).collect()
    }

    #[test]
    fn leak_is_seen_below_noise_of_ten_times_its_size() {
        assert!(Trend::of(&samples(40.0, |time| 50.0 + 8.0 * time), 1.0).grows());
    }

    #[test]
    fn noise_and_warming_up_are_not_growth() {
        assert!(!Trend::of(&samples(40.0, |_| 50.0), 1.0).grows());
        assert!(!Trend::of(&samples(2.0, |time| 50.0 - 40.0 * (-20.0 * time).exp()), 1.0).grows());
        assert!(!Trend::of(&samples(2.0, |time| 50.0 - 10.0 * time), 1.0).grows());
    }

    #[test]
    fn single_step_in_the_second_half_is_not_growth() {
        assert!(!Trend::of(&samples(0.1, |time| if time > 0.9 { 60.0 } else { 50.0 }), 1.0).grows());
    }

    #[test]
    fn few_samples_say_nothing() {
        for count in 0..3 {
            assert!(!Trend::of(&vec![5.0; count], 1.0).grows());
        }
    }
}
