//! What must not compile, and what the compiler says of it.
//!
//! Its words differ between versions; `TRYBUILD=overwrite cargo test --test compile_fail` writes them anew.

#[test]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
