//! Ways to combine elements.

use std::fmt;

/// How to combine the ranks' elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Op {
    /// The sum. Sums of integers wrap around.
    Sum,
    /// The product. Products of integers wrap around.
    Product,
    /// The smallest element. Numbers win over NaN.
    Min,
    /// The largest element. Numbers win over NaN.
    Max,
    /// The sum divided by the number of ranks. Integers are rounded toward zero.
    Average,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sum => "sum",
            Self::Product => "product",
            Self::Min => "min",
            Self::Max => "max",
            Self::Average => "average",
        })
    }
}
