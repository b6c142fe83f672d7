//! The libraries that `gpustream-math` opens.

use super::tool::{Found, Missing, Tool};

/// Looks for all libraries.
pub(super) fn collect() -> Vec<Tool> {
    let tool = |library: gpustream_math::LibraryInfo| {
        let search = match library.file {
            Ok(file) => {
                let version = library.version.unwrap_or_default();
                Ok(Found { version, path: Some(file.display().to_string()), ..Found::default() })
            }
            Err(error) => Err(Missing { tried: vec![error.message().to_owned()], how: how(library.name) }),
        };
        Tool::new(library.name, library.purpose, search)
    };
    gpustream_math::libraries().into_iter().map(tool).collect()
}

/// Says who needs the library.
fn how(name: &str) -> &'static str {
    match name {
        "cuBLAS" | "cuBLASLt" | "hipBLAS" | "hipBLASLt" => {
            "Needed only for the feature blas of gpustream-math."
        }
        _ => "Needed only for the feature fft of gpustream-math.",
    }
}
