//! Reads a kernel's contract, and refuses one that promises too little for a safe launcher.

use tree_sitter::Node;

use super::kernel::outermost;
use super::{File, doc};
use crate::contract::{COOPERATIVE, Contract, Expr, LaunchValue, LineKind, Scope};
use crate::signature::Kernel;
use crate::types::{Hazard, Param, ParamType, ValueType};

impl<'a> File<'a> {
    /// Reads and checks the contract. If it has mistakes, the kernel counts as one without a contract, so
    /// nothing else is reported about it.
    pub(super) fn contract(&mut self, node: Node<'a>, kernel: &Kernel, lines: &[doc::DocLine]) -> Contract {
        let read = self.read_contract(kernel, lines);
        if let Some(contract) = &read {
            self.check_generic(contract, &kernel.params, &kernel.generics);
            self.check_contract(contract, node, kernel);
        }
        if let Some(range) = self.docs.ordinary_above(outermost(node).start_byte()) {
            let warning = format!(
                "this looks like the contract of `{}`, but we do not read ordinary comments; begin its lines with `///`",
                kernel.name
            );
            self.warn(range.start, &warning);
        }
        let mut contract = read.unwrap_or_default();
        if contract.safe {
            for instance in &kernel.instances {
                self.check_contents(&kernel.params, &instance.params);
            }
            self.add_cooperative(&mut contract, node, kernel);
        }
        contract
    }

    /// Reads the contract above a kernel, and what the build script adds to it.
    fn read_contract(&mut self, of: &Kernel, lines: &[doc::DocLine]) -> Option<Contract> {
        let mut contract = Contract::default();
        let before = self.diagnostics.len();
        let (text, definitions) = (&self.docs.blanked, &self.types.used);
        let (kernel, params) = (&*of.name, &*of.params);
        let scope = Scope { file: self.source, text, kernel, params, definitions };
        for (kind, range) in doc::contract(lines) {
            contract.add(kind, range, scope, &mut self.diagnostics);
        }
        for (_, file) in self.contracts.iter().filter(|(asked, _)| of.function.is_called(asked)) {
            let parts = doc::contract(&doc::plain_lines(&file.text));
            if parts.is_empty() || parts.iter().any(|(kind, _)| *kind == LineKind::Types) {
                self.diagnostics.push(file.diagnostic(
                    0..file.text.len(),
                    format!("this is no contract for `{kernel}`"),
                    "write `requires:`, `covers:`, `reads:`, `optional:` or `stacks:` in `Kernels::contract`; \
                     `Kernels::instantiate` is for types",
                ));
                continue;
            }
            for (kind, range) in parts {
                let scope = Scope { file, text: &file.text, ..scope };
                contract.add(kind, range, scope, &mut self.diagnostics);
            }
        }
        (self.diagnostics.len() == before).then_some(contract)
    }

    /// Adds the condition `cooperative` if the kernel can reach a barrier of the whole grid.
    fn add_cooperative(&mut self, contract: &mut Contract, node: Node<'a>, kernel: &Kernel) {
        if contract.cooperative || !self.uses.meets(&self.source.text, node) {
            return;
        }
        contract.cooperative = true;
        let warning = format!(
            "`{}` can come to a barrier of the whole grid, so its launcher launches it cooperatively; say so in its \
             contract: `requires: {COOPERATIVE}, …` (or write `__syncthreads()` where the barrier is one of the block)",
            kernel.name
        );
        self.warn(kernel.name_range.start, &warning);
    }

    /// Refuses a contract that computes with a number whose type the template chooses, because launchers
    /// evaluate contracts before they know the type.
    fn check_generic(&mut self, contract: &Contract, params: &[Param], generics: &[Option<usize>]) {
        let clauses = contract.requires.iter().flat_map(|clause| [&clause.left, &clause.right]);
        let extents = contract.covers.iter().flat_map(|covers| &covers.extents);
        let leaves: Vec<_> = clauses.chain(extents).flat_map(Expr::values).collect();
        let is_leaf = |i: usize| {
            leaves
                .iter()
                .any(|leaf| matches!(leaf, Expr::Param(param) | Expr::Member { param, .. } if *param == i))
        };
        let is_used = |i: &usize| generics[*i].is_some() && is_leaf(*i);
        for i in (0..params.len()).filter(is_used) {
            self.diagnostics.push(self.source.diagnostic(
                params[i].range.clone(),
                format!("the contract computes with `{}`, whose type the template chooses", params[i].name),
                "write an integer type",
            ));
        }
    }

    /// Refuses a contract that promises too little for a safe launcher.
    fn check_contract(&mut self, contract: &Contract, node: Node<'a>, kernel: &Kernel) {
        let source = self.source;
        let Kernel { name_range, params, instances, .. } = kernel;
        let name = &source.text[name_range.clone()];
        let mut refuse = |range: std::ops::Range<usize>, message: String, help: String| {
            self.diagnostics.push(source.diagnostic(range, message, help));
        };
        let block = contract.covers.as_ref().and_then(|covers| covers.block.as_ref());
        let threads = block.map_or(0, |block| block.iter().product::<u32>());
        let max_threads = instances.iter().filter_map(|instance| instance.max_threads).min();
        if let Some(most) = max_threads.filter(|most| threads > *most) {
            refuse(
                name_range.clone(),
                format!("`covers:` asks for blocks of {threads} threads, and `{name}` takes at most {most}"),
                "write a smaller block after `by`, or a larger __launch_bounds__".to_owned(),
            );
        }
        if let Some(index) = contract.covered_optional() {
            let pointer = &params[index].name;
            refuse(
                params[index].range.clone(),
                format!("`covers:` needs the length of `{pointer}`, which is optional"),
                "use an integer parameter".to_owned(),
            );
        }
        if !contract.safe {
            return;
        }
        for (index, param) in params.iter().enumerate() {
            if matches!(param.ty, ParamType::Pointer { .. }) && !contract.bounds_below(&Expr::Len(index)) {
                let pointer = &param.name;
                refuse(
                    param.range.clone(),
                    format!("the contract of `{name}` does not say how long `{pointer}` must be"),
                    format!(
                        "add a condition such as `n <= len({pointer})`, or `0 <= len({pointer})` if the kernel \
                         touches none of it; without any `requires:` the launcher is an unsafe fn"
                    ),
                );
            }
        }
        if !contract.bounds_below(&Expr::Launch(LaunchValue::Shared))
            && let Some(array) = self.uses.first_of(&source.text, node, &self.dynamic_shared)
        {
            refuse(
                name_range.clone(),
                format!("the contract of `{name}` does not say how much dynamic shared memory `{array}` must have"),
                "add a condition such as `4 * block.x <= shared`, or `0 <= shared` if the kernel touches none of \
                 it; without any `requires:` the launcher is an unsafe fn"
                    .to_owned(),
            );
        }
        for param in params {
            if matches!(param.ty, ParamType::Pointer { volatile: true, .. })
                && source.text[param.range.clone()].contains("restrict")
            {
                refuse(
                    param.range.clone(),
                    format!("`{}` is volatile and restrict", param.name),
                    "leave one of the two out: memory that may change at any time has other pointers to it"
                        .to_owned(),
                );
            }
        }
    }

    /// Refuses a contract on memory whose contents no condition can vouch for.
    fn check_contents(&mut self, params: &[Param], types: &[ParamType]) {
        const UNSAFE: &str = "leave `requires:` out: the launcher is then an unsafe fn";
        for (param, ty) in params.iter().zip(types) {
            let name = &param.name;
            let (message, help) = match (ty.hazard(), ty) {
                (_, ParamType::Pointer { element: ValueType::Bytes { unknown: Some(why) }, .. }) => {
                    self.diagnostics.push((**why).clone());
                    continue;
                }
                (Some(Hazard::Address), _) => (
                    format!("`{name}` holds addresses or handles, for which no condition can vouch"),
                    format!("pass one pointer and offsets into it, or {UNSAFE}"),
                ),
                (Some(Hazard::Bool), ParamType::Pointer { .. }) => (
                    format!(
                        "`{name}` is memory of bools, which could hold values that are neither true nor false"
                    ),
                    format!("write `unsigned char* {name}`, or {UNSAFE}"),
                ),
                (Some(Hazard::Bool), ParamType::Value(_)) => (
                    format!("`{name}` has a bool, which could hold a value that is neither true nor false"),
                    format!("make the member an `unsigned char`, or {UNSAFE}"),
                ),
                (Some(Hazard::Bytes), ParamType::Pointer { .. }) => (
                    format!("`{name}` points to void, so that no condition can say how long it must be"),
                    format!("say what it points to, for bytes `unsigned char* {name}`; or {UNSAFE}"),
                ),
                _ => continue,
            };
            self.diagnostics.push(self.source.diagnostic(param.range.clone(), message, help));
        }
    }
}
