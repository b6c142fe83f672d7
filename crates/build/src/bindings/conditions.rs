//! A contract's conditions in Rust.

use super::fill::fill;
use super::names::Names;
use crate::contract::{Clause, Expr, LaunchValue, Operator};
use crate::signature::Kernel;

const CHECK: &str = r"
if !({{holds}}) {
    return Err({{violated}});
}
";

/// Returns the check of a condition. If an optional argument is missing, conditions on its length hold.
pub(super) fn check(clause: &Clause, names: &Names<'_>) -> String {
    let (left, right) = (expression(&clause.left, names), expression(&clause.right, names));
    let holds = if clause.left.computes() || clause.right.computes() {
        format!("(|| Some({left} {} {right}))() == Some(true)", clause.comparison)
    } else {
        format!("{left} {} {right}", clause.comparison)
    };
    let lengths = clause.left.lengths().chain(clause.right.lengths());
    let mut absent: Vec<_> = lengths.filter(|i| names.is_optional(*i)).collect();
    absent.dedup();
    let absent = absent.into_iter().map(|i| format!("{}.is_none() || ", names.args[i]));
    fill!(
        CHECK,
        holds = absent.collect::<String>() + &holds,
        violated = violated(&clause.text, &[&clause.left, &clause.right], names),
    )
}

/// Returns the error for a condition, with the values that violate it.
pub(super) fn violated(clause: &str, expressions: &[&Expr], names: &Names<'_>) -> String {
    let kernel = names.kernel;
    let mut values: Vec<(String, String)> = Vec::new();
    for leaf in expressions.iter().flat_map(|expr| expr.values()) {
        let label = label(leaf, kernel);
        if values.iter().all(|(l, _)| *l != label) {
            values.push((label, expression(leaf, names)));
        }
    }
    let values: Vec<String> = values.into_iter().map(|(l, v)| format!("({l:?}, {v})")).collect();
    format!("__gpustream::codegen::violated({:?}, {clause:?}, &[{}])", kernel.name, values.join(", "))
}

/// Returns a value as the contract writes it.
fn label(leaf: &Expr, kernel: &Kernel) -> String {
    const AXES: [&str; 3] = ["x", "y", "z"];
    match leaf {
        Expr::Param(i) => kernel.params[*i].name.clone(),
        Expr::Member { written, .. } => written.clone(),
        Expr::Len(i) => format!("len({})", kernel.params[*i].name),
        Expr::Launch(LaunchValue::Grid(axis)) => format!("grid.{}", AXES[*axis]),
        Expr::Launch(LaunchValue::Block(axis)) => format!("block.{}", AXES[*axis]),
        Expr::Launch(LaunchValue::Shared) => "shared".to_owned(),
        Expr::Literal(_) | Expr::Negate(_) | Expr::Binary(..) => String::new(),
    }
}

/// Returns a Rust expression of type i128. It uses `?` on overflow, so it must be inside a closure that
/// returns an Option.
pub(super) fn expression(expr: &Expr, names: &Names<'_>) -> String {
    match expr {
        Expr::Literal(value) => format!("{value}_i128"),
        Expr::Param(i) => format!("({} as i128)", names.args[*i]),
        Expr::Member { param, rust, .. } => format!("({}{rust} as i128)", names.args[*param]),
        Expr::Len(i) => {
            let arg = &names.args[*i];
            if names.is_optional(*i) {
                return format!("({arg}.as_ref().map_or(0, |view| view.len()) as i128)");
            }
            format!("({arg}.len() as i128)")
        }
        Expr::Launch(LaunchValue::Grid(axis)) => format!("({}.grid[{axis}] as i128)", names.config),
        Expr::Launch(LaunchValue::Block(axis)) => format!("({}.block[{axis}] as i128)", names.config),
        Expr::Launch(LaunchValue::Shared) => format!("({}.dynamic_shared as i128)", names.config),
        Expr::Negate(inner) => format!("{}.checked_neg()?", expression(inner, names)),
        Expr::Binary(operator, left, right) => {
            let method = match operator {
                Operator::Add => "checked_add",
                Operator::Subtract => "checked_sub",
                Operator::Multiply => "checked_mul",
                Operator::Divide => "checked_div",
                Operator::Remainder => "checked_rem",
            };
            format!("{}.{method}({})?", expression(left, names), expression(right, names))
        }
    }
}
