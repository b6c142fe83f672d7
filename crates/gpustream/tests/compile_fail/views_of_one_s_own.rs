//! Views are checked on one and used on the next, so they cannot be made up.
use gpustream::{AsView, View};

struct Shrinking<'a>(View<'a, u32>);

impl AsView<u32> for Shrinking<'_> {
    fn view(&self) -> View<'_, u32> {
        self.0
    }
}

fn main() {}
