//! You cannot implement `AsView`, because the library asks for a view twice, to check and to use it, and both must agree.
use gpustream::{AsView, View};

struct Shrinking<'a>(View<'a, u32>);

impl AsView<u32> for Shrinking<'_> {
    fn view(&self) -> View<'_, u32> {
        self.0
    }
}

fn main() {}
