//! Programs that must not compile, and the compiler's messages.
//!
//! The messages can differ between compiler versions. If they do, `TRYBUILD=overwrite cargo test --test compile_fail` writes
//! them again.

#[test]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
