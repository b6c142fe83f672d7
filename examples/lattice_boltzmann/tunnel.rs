//! The tunnel's numbers, which have nothing to do with devices.

use super::Tunnel;

/// The viscosity in cells² per step of all but large tunnels. If it were much smaller, the method would be unstable, and if it
/// were much larger, small tunnels would have no vortices.
const VISCOSITY: f32 = 0.01;

/// The highest Reynolds number. The air of a large tunnel is more viscous, because this method cannot resolve the vortices of
/// higher numbers: after a few thousand steps the velocities would grow without bound.
const MOST_REYNOLDS: f32 = 1280.0;

/// How many populations a cell has.
pub const POPULATIONS: usize = 9;

/// A tunnel that is four times as long as high, and its wind.
pub struct Wind {
    /// What the kernels want to know.
    pub tunnel: Tunnel,
    /// How many cells a row has.
    pub width: usize,
    /// The Reynolds number: wind times diameter, divided by viscosity.
    pub reynolds: f32,
}

impl Wind {
    /// Chooses the numbers for a tunnel of `height` rows.
    pub fn new(height: usize) -> Self {
        let (radius, wind) = ((height / 8) as f32, 0.1);
        let reynolds = (2.0 * radius * wind / VISCOSITY).min(MOST_REYNOLDS);
        let viscosity = 2.0 * radius * wind / reynolds;
        let (x, y, fan) = (height as f32, (height / 2) as f32, (height / 4) as f32);
        let tunnel = Tunnel { x, y, radius, wind, fan, relaxation: 1.0 / (3.0 * viscosity + 0.5) };
        Self { tunnel, width: 4 * height, reynolds }
    }
}
