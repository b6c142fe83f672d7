//! Programs that must not compile, and the compiler's messages.
//!
//! The messages differ between compiler versions; `TRYBUILD=overwrite cargo test --test compile_fail` writes them anew.

#[test]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
