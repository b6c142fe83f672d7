//! Tests as lists of functions.

pub(crate) type Test = (&'static str, fn());

/// Lists functions as tests, by their names.
macro_rules! tests {
    ($($test:ident),* $(,)?) => {
        pub(crate) const TESTS: &[crate::list::Test] = &[$((concat!(module_path!(), "::", stringify!($test)), $test)),*];
    };
}
pub(crate) use tests;

/// Returns the tests of several files, without the crate's name in theirs.
pub(crate) fn all(files: &[&[Test]]) -> Vec<Test> {
    let short = |(name, test): Test| (name.split_once("::").map_or(name, |(_, name)| name), test);
    files.concat().into_iter().map(short).collect()
}
