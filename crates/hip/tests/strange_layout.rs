//! A library whose properties have an unknown layout: the text in the processor's place is none.

use fake_hip::{Options, Profile};
use gpustream_hal::ErrorKind;

#[test]
fn nonsense_is_not_taken_for_a_processor() {
    let _recorder = fake_hip::load_with(Options { arch: "\u{1}\u{2}MI300", ..Options::of(Profile::Rocm7) });
    let error = gpustream_hip::backend().open(0).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("7.15.51803") && error.message().contains("layout"), "{error}");
}
