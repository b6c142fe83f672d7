//! Sets the condition under which the library uses the locks of `shuttle`.

fn main() {
    println!("cargo::rustc-cfg=shuttle");
    println!("cargo::rerun-if-changed=build.rs");
}
