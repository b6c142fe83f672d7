//! Counts the lines of both versions from their sources.

/// One application: the files of its device work.
struct Application {
    name: &'static str,
    ours: &'static str,
    /// Both versions use these kernels. Their contracts are lines that only ours needs.
    kernels: &'static str,
    cudarc: &'static str,
}

const APPLICATIONS: [Application; 3] = [
    Application {
        name: "lattice_boltzmann",
        ours: include_str!("../../lattice_boltzmann/simulation.rs"),
        kernels: include_str!("../../lattice_boltzmann/lattice_boltzmann.cu"),
        cudarc: include_str!("with_cudarc/simulation.rs"),
    },
    Application {
        name: "image_service",
        ours: include_str!("../../image_service/src/blur.rs"),
        kernels: include_str!("../../image_service/kernels/blur.cu"),
        cudarc: include_str!("with_cudarc/blur.rs"),
    },
    Application {
        name: "mlp",
        ours: include_str!("../../math/src/network.rs"),
        kernels: include_str!("../../math/kernels/network.cu"),
        cudarc: include_str!("with_cudarc/network.rs"),
    },
];

/// What was counted of one application.
pub(crate) struct Lines {
    pub(crate) name: &'static str,
    /// Rust, and the contracts in the comments of the kernels.
    pub(crate) ours: usize,
    pub(crate) cudarc: usize,
    pub(crate) ours_unsafe: usize,
    pub(crate) cudarc_unsafe: usize,
}

/// Counts the lines of all applications.
pub(crate) fn count() -> impl Iterator<Item = Lines> {
    APPLICATIONS.into_iter().map(|Application { name, ours, kernels, cudarc }| Lines {
        name,
        ours: code(ours).count() + contracts(kernels),
        cudarc: code(cudarc).count(),
        ours_unsafe: unsafes(ours),
        cudarc_unsafe: unsafes(cudarc),
    })
}

/// Returns the lines that are neither blank nor comments.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//"))
}

fn unsafes(text: &str) -> usize {
    code(text).map(|line| line.matches("unsafe {").count()).sum()
}

fn contracts(kernels: &str) -> usize {
    let is_contract = |line: &&str| line.starts_with("/// requires:") || line.starts_with("/// covers:");
    kernels.lines().filter(is_contract).count()
}

#[cfg(test)]
mod tests {
    use super::{code, count};

    #[test]
    fn blank_lines_and_comments_do_not_count() {
        assert_eq!(code("//! About.\n\nfn f() {\n    // Why.\n    g(); // how\n}\n").count(), 3);
    }

    #[test]
    fn the_documentation_has_the_lines_of_the_sources() {
        let page = include_str!("../../../docs/nvidia.md");
        for lines in count() {
            let row =
                format!("| `{}` | {} | {} | {} |", lines.name, lines.ours, lines.cudarc, lines.cudarc_unsafe);
            assert!(page.contains(&row), "docs/nvidia.md should have a row that begins with {row}");
            assert_eq!(lines.ours_unsafe, 0);
        }
    }
}
