//! A problem with a known solution, and a bound for the error that the grid causes.

use std::f64::consts::PI;

/// Returns the distance between neighbouring points of the unit cube.
pub(crate) fn width(side: usize) -> f64 {
    1.0 / (side as f64 + 1.0)
}

/// Returns a derivative of g(t) = exp(t) sin(πt) at `t`. The exact solution is u(x, y, z) = g(x) g(y) g(z). It is 0 on the
/// border, and it is not symmetric, because otherwise a rank could have the wrong planes and we would not notice.
pub(crate) fn exact(derivative: i32, t: f64) -> f64 {
    let (times, turned) = ((1.0 + PI * PI).sqrt(), PI.atan());
    times.powi(derivative) * t.exp() * (PI * t + f64::from(derivative) * turned).sin()
}

/// Returns a bound: the discrete solution's error must not be larger.
///
/// The second differences are off by at most h² / 12 times the fourth derivatives, and the solution's error is at most an
/// eighth of that. The eighth comes from the maximum principle: A applied to x (1 - x) / 2 is 1, and this function is at
/// most 1/8. So if the right side is at most 1, the solution is at most 1/8.
pub(crate) fn largest_error(side: usize) -> f64 {
    let largest =
        |derivative| (0..=1000).map(|i| exact(derivative, f64::from(i) / 1000.0).abs()).fold(0.0, f64::max);
    let fourth_derivatives = 3.0 * largest(4) * largest(0) * largest(0);
    width(side).powi(2) / 12.0 * fourth_derivatives / 8.0
}
