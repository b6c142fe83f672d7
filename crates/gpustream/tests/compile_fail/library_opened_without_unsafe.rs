use std::path::Path;

use gpustream::hal::library::Search;

fn main() {
    let _ = Search::only(Path::new("any.so"));
    let _ = Search::open("ANY", [Path::new("any.so").to_path_buf()]);
}
