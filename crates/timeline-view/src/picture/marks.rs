//! Instants: a symbol at a moment.

use gpustream_timeline::InstantKind;

/// A symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mark {
    Future,
    Woken,
    HostClosure,
    Lint,
    User,
}

impl Mark {
    pub(super) const ALL: [Self; 5] = [Self::Future, Self::Woken, Self::HostClosure, Self::Lint, Self::User];

    pub(super) fn of(kind: &InstantKind) -> Self {
        match kind {
            InstantKind::Future => Self::Future,
            InstantKind::Woken => Self::Woken,
            InstantKind::HostClosure => Self::HostClosure,
            InstantKind::Lint(_) => Self::Lint,
            _ => Self::User,
        }
    }

    /// Returns the name for the legend.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Future => "future made",
            Self::Woken => "future woken",
            Self::HostClosure => "host closure called",
            Self::Lint => "finding of the lint",
            Self::User => "event of the program",
        }
    }

    /// Returns the CSS class, and the path around the origin.
    pub(super) fn shape(self) -> (&'static str, &'static str) {
        match self {
            Self::Future => ("mark", "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z"),
            Self::Woken => ("mark full", "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z"),
            Self::HostClosure => ("mark", "M-3-3h6v6h-6z"),
            Self::Lint => ("mark alarm", "M0-4.5 4.5 3.5h-9z"),
            Self::User => ("mark full", "M0-4.5 4 0 0 4.5-4 0z"),
        }
    }
}
