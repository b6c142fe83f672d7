//! Readable names for kernels' symbols.

use std::collections::HashMap;
use std::ffi::CStr;
use std::sync::Arc;

use cpp_demangle::{DemangleOptions, Symbol};

/// We keep at most this many names. If a program has more kernels, for example because it compiles them as it runs, we drop
/// all names and begin again.
const MOST: usize = 4096;

/// The readable names of symbols. We make each name once.
#[derive(Debug, Default)]
pub struct Names(HashMap<Box<CStr>, Arc<str>>);

impl Names {
    /// Returns the name of the function with this symbol.
    pub fn of(&mut self, symbol: &CStr) -> Arc<str> {
        if let Some(name) = self.0.get(symbol) {
            return Arc::clone(name);
        }
        if self.0.len() >= MOST {
            self.0.clear();
        }
        let name: Arc<str> = demangled(symbol).into();
        self.0.insert(symbol.into(), Arc::clone(&name));
        name
    }
}

/// Returns the path of a C++ function with its template arguments. Any other symbol stays as it is.
#[must_use]
pub fn demangled(symbol: &CStr) -> String {
    let options = DemangleOptions::new().no_params().no_return_type();
    let name = Symbol::new(symbol.to_bytes()).ok().and_then(|name| name.demangle_with_options(&options).ok());
    name.unwrap_or_else(|| symbol.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_of_cpp_become_readable_and_others_stay() {
        let mut names = Names::default();
        for (symbol, name) in [
            (c"_ZN6solver4stepIfLi3EEEvPT_", "solver::step<float, 3>"),
            (c"saxpy", "saxpy"),
            (c"_Znonsense", "_Znonsense"),
            (c"", ""),
        ] {
            assert_eq!(&*names.of(symbol), name);
            assert!(Arc::ptr_eq(&names.of(symbol), &names.of(symbol)));
        }
    }

    #[test]
    fn endless_names_are_not_all_kept() {
        let mut names = Names::default();
        for number in 0..3 * MOST {
            let symbol = std::ffi::CString::new(format!("kernel_{number}")).unwrap();
            assert_eq!(*names.of(&symbol), *symbol.to_str().unwrap());
            assert!(names.0.len() <= MOST);
        }
    }
}
