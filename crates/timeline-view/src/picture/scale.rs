//! The time axis: the pixels of times, and the ticks.

use std::ops::Range;

use gpustream_timeline::Nanos;

/// A time range, and the pixels that show it.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    /// Nanoseconds from the beginning of each timeline.
    pub(super) window: Range<Nanos>,
    /// The first pixel.
    pub(super) left: f64,
    /// The width in pixels.
    pub(super) width: f64,
}

impl Scale {
    /// Returns the pixel of a time. A time outside the window may be far away, but its pixel is just outside
    /// the picture.
    pub(super) fn x(&self, time: Nanos) -> f64 {
        let length = (self.window.end - self.window.start).max(1) as f64;
        let past = time as f64 - self.window.start as f64;
        self.left + (past / length).clamp(-0.01, 1.01) * self.width
    }

    /// Returns the times of the ticks, with their labels.
    pub(super) fn ticks(&self) -> Vec<(Nanos, String)> {
        let length = (self.window.end - self.window.start).max(1);
        let most = (self.width / 90.0).max(2.0);
        let least = length as f64 / most;
        let mut step = 1;
        for factor in [2.0, 2.5, 2.0].into_iter().cycle() {
            if step as f64 >= least {
                break;
            }
            step = (step as f64 * factor).round() as Nanos;
        }
        let first = self.window.start.div_ceil(step).saturating_mul(step);
        let last = self.window.end;
        let label = Labels::new(step, last);
        std::iter::successors(Some(first), |tick| tick.checked_add(step))
            .take_while(|&tick| tick <= last)
            .map(|tick| (tick, label.of(tick)))
            .collect()
    }
}

/// The unit and number of digits that all ticks share.
struct Labels {
    /// The unit's length in nanoseconds, and its name.
    unit: (Nanos, &'static str),
    digits: usize,
}

impl Labels {
    /// Chooses the largest unit that makes the last tick at least 1 and that can tell ticks apart by three
    /// decimal places.
    fn new(step: Nanos, last: Nanos) -> Self {
        let digits = |unit: Nanos| {
            let mut scaled = (0..=3).map(|digits| (digits, u128::from(step) * 10u128.pow(digits)));
            scaled.find(|(_, scaled)| scaled % u128::from(unit) == 0).map(|(digits, _)| digits as usize)
        };
        let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs")];
        let mut fitting = units.into_iter().filter(|&(unit, _)| last >= unit);
        let fitting = fitting.find_map(|unit| Some(Self { unit, digits: digits(unit.0)? }));
        fitting.unwrap_or(Self { unit: (1, "ns"), digits: 0 })
    }

    fn of(&self, tick: Nanos) -> String {
        if tick == 0 {
            return "0".to_owned();
        }
        format!("{:.*} {}", self.digits, tick as f64 / self.unit.0 as f64, self.unit.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(window: Range<Nanos>) -> Vec<String> {
        let scale = Scale { window, left: 0.0, width: 450.0 };
        scale.ticks().into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_are_round_and_share_a_unit() {
        assert_eq!(labels(0..2_000_000), ["0", "0.5 ms", "1.0 ms", "1.5 ms", "2.0 ms"]);
        assert_eq!(labels(0..800), ["0", "200 ns", "400 ns", "600 ns", "800 ns"]);
        assert_eq!(labels(0..0), ["0"]);
        // Deep inside a long trace, ticks must still be distinguishable.
        assert_eq!(
            labels(3_200_000_000..3_200_040_000),
            ["3200.00 ms", "3200.01 ms", "3200.02 ms", "3200.03 ms", "3200.04 ms"]
        );
    }

    #[test]
    fn times_outside_of_the_window_lie_just_outside_of_the_pixels() {
        let scale = Scale { window: 100..200, left: 50.0, width: 100.0 };
        assert_eq!([100, 150, 200].map(|time| scale.x(time)), [50.0, 100.0, 150.0]);
        assert_eq!([0, u64::MAX].map(|time| scale.x(time)), [49.0, 151.0]);
    }
}
