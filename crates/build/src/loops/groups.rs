//! Replaces cooperative groups by plain CUDA, because that is all the rest of the rewrite knows.
//!
//! A group object holds nothing that does not follow from the thread's number, so we can do without it. For example, if
//! `tile` has 32 threads, `tile.shfl_down(v, 4)` becomes `__shfl_down_sync(0xffffffffu, v, 4, 32)`, and `block.sync()`
//! becomes `__syncthreads()`.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use tree_sitter::Node;

use super::edits::{self, Edit, line_breaks};
use super::waits::callee;
use crate::names::last_name;
use crate::parse::{child_of_kind, declarators, declared, descendants, named, without_comments};

#[derive(Clone, Copy)]
enum Group {
    Block,
    /// This many neighbours in a block.
    Tile(u32),
}

/// What a group is a part of.
enum Parent {
    Block,
    Named(String),
}

/// A group, its parent and its declaration.
type Declared = (Group, Parent, Range<usize>);

/// The beginning of the names of [`reductions`].
const REDUCE: &str = "gs_reduce_";

/// The operations of cooperative groups, and what they make of `gs_v` and another thread's `gs_w`.
const OPERATIONS: [(&str, &str); 6] = [
    ("plus", "gs_v + gs_w"),
    ("less", "gs_w < gs_v ? gs_w : gs_v"),
    ("greater", "gs_w > gs_v ? gs_w : gs_v"),
    ("bit_and", "gs_v & gs_w"),
    ("bit_or", "gs_v | gs_w"),
    ("bit_xor", "gs_v ^ gs_w"),
];

/// Returns the operations of your own in a file's calls of `cg::reduce`: functors, lambdas and functions. For each, its name
/// and the statements that combine `gs_v` with `gs_w`.
pub(super) fn own_operations(text: &str, root: Node<'_>) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for node in descendants(root).filter(|node| node.kind() == "call_expression") {
        if let Some([_, _, operation]) = reduced(text, node)
            && known_operation(text, operation).is_none()
        {
            let written = in_one_line(&text[operation.byte_range()]);
            let name = own_name(&written);
            found
                .push((name, of_lambda(text, operation).unwrap_or(format!("gs_v = {written}(gs_v, gs_w);"))));
        }
    }
    found
}

/// Returns the body of a lambda that only returns an expression, with its parameters as variables.
fn of_lambda(text: &str, mut node: Node<'_>) -> Option<String> {
    while node.kind() == "parenthesized_expression" {
        node = node.named_child(0)?;
    }
    let field = |name| node.child_by_field_name(name).filter(|_| node.kind() == "lambda_expression");
    let [first, second] = named(field("declarator")?.child_by_field_name("parameters")?).try_into().ok()?;
    let [result] = named(field("body")?).try_into().ok()?;
    let result = result.named_child(0).filter(|_| result.kind() == "return_statement")?;
    let written = |node: Node<'_>| in_one_line(&text[node.byte_range()]);
    let parameter = |node: Node<'_>| written(node).replace('&', " ");
    Some(format!(
        "{{ {} = gs_v; {} = gs_w; gs_v = {}; }}",
        parameter(first),
        parameter(second),
        written(result)
    ))
}

/// Returns the values of a call of `cg::reduce`.
fn reduced<'t>(text: &str, call: Node<'t>) -> Option<[Node<'t>; 3]> {
    let values = named(call.child_by_field_name("arguments")?);
    values.try_into().ok().filter(|_| callee(text, call) == Some("reduce"))
}

/// Returns the name of an operation that cooperative groups have.
fn known_operation<'t>(text: &'t str, operation: Node<'_>) -> Option<&'t str> {
    let name = text[operation.byte_range()].split(['<', '(', '{']).next().map(last_name)?.trim();
    OPERATIONS.iter().any(|(known, _)| *known == name).then_some(name)
}

/// Returns an expression without comments and line breaks.
fn in_one_line(text: &str) -> String {
    without_comments(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns a name for an operation of yours. It has the text's checksum, so equal operations have one function.
fn own_name(operation: &str) -> String {
    let sum = operation
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("own_{sum:x}")
}

/// Returns a file with functions that combine a value of all threads in a tile. We put calls of them in for `cg::reduce`, and
/// they are then inlined. `own` are the operations that cooperative groups do not have.
pub(super) fn reductions(own: Vec<(String, String)>) -> String {
    let mut text = String::new();
    let theirs =
        OPERATIONS.iter().map(|(name, combined)| ((*name).to_owned(), format!("gs_v = {combined};")));
    for (name, combine) in theirs.chain(own.into_iter().collect::<BTreeMap<_, _>>()) {
        for size in [2, 4, 8, 16, 32] {
            text.push_str(&format!(
                "template <class T> __device__ T {REDUCE}{name}_{size}(T gs_v) {{ for (int gs_step = {}; gs_step > 0; \
                 gs_step /= 2) {{ const T gs_w = __shfl_xor_sync(0xffffffffu, gs_v, gs_step, {size}); {combine} }} \
                 return gs_v; }}\n",
                size / 2
            ));
        }
    }
    text
}

/// The block as an object, for functions that take one.
const BLOCK: &str = "::cooperative_groups::this_thread_block()";
/// The number of a thread in its block, and how many threads the block has.
const RANK: &str = "(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z))";
const THREADS: &str = "(blockDim.x * blockDim.y * blockDim.z)";

impl Group {
    /// Returns the expression that replaces a call without values.
    fn plain(self, method: &str) -> Option<String> {
        Some(match (self, method) {
            (Self::Block, "sync" | "wait") => "__syncthreads()".to_owned(),
            (Self::Block, "thread_rank") => RANK.to_owned(),
            (Self::Block, "size" | "num_threads" | "group_size") => THREADS.to_owned(),
            (Self::Block, "thread_index") => "threadIdx".to_owned(),
            (Self::Block, "group_index") => "blockIdx".to_owned(),
            (Self::Block, "group_dim" | "dim_threads") => "blockDim".to_owned(),
            (Self::Tile(_), "sync") => "__syncwarp()".to_owned(),
            (Self::Tile(size), "thread_rank") => format!("({RANK} % {size}u)"),
            (Self::Tile(size), "meta_group_rank") => format!("({RANK} / {size}u)"),
            (Self::Tile(size), "meta_group_size") => format!("(({THREADS} + {size}u - 1) / {size}u)"),
            (Self::Tile(size), "size" | "num_threads" | "group_size") => format!("{size}u"),
            _ => return None,
        })
    }

    /// Returns the function that replaces a method with values, and its last argument.
    fn meeting(self, method: &str) -> Option<(String, String)> {
        match (self, method) {
            (Self::Tile(size), "shfl" | "shfl_up" | "shfl_down" | "shfl_xor") => {
                Some((format!("__{method}_sync"), format!(", {size}")))
            }
            (Self::Tile(32), "any" | "all" | "ballot") => Some((format!("__{method}_sync"), String::new())),
            _ => None,
        }
    }
}

/// Returns the file without the groups in a function. Each line stays in its place. Returns `None` if there are no
/// groups, or if the function needs one as an object, for example to pass it on.
pub(super) fn without(text: &str, function: Node<'_>) -> Option<String> {
    let (groups, mut edits) = declarations(text, function);
    if groups.is_empty() {
        return None;
    }
    let calls = descendants(function).filter(|node| node.kind() == "call_expression");
    edits.extend(calls.filter_map(|node| call(text, node, &groups)).flatten());
    let stays = |node: Node<'_>| !edits.iter().any(|(range, _)| range.contains(&node.start_byte()));
    let mut names = descendants(function).filter(|node| node.kind() == "identifier");
    if names.any(|name| groups.contains_key(&text[name.byte_range()]) && stays(name)) {
        return None;
    }
    for (range, new) in &mut edits {
        *new += &line_breaks(&text[range.clone()]);
    }
    Some(edits::in_file(text, function, edits))
}

/// Returns the groups in a function that have a unique name, and the edits that remove their declarations.
fn declarations(text: &str, function: Node<'_>) -> (HashMap<String, Group>, Vec<Edit>) {
    let mut found: HashMap<String, Vec<Option<Declared>>> = HashMap::new();
    let mut copies = Vec::new();
    for node in descendants(function) {
        if let "declaration" | "parameter_declaration" = node.kind() {
            let declarators = declarators(node);
            for declarator in &declarators {
                let value = declarator.child_by_field_name("value");
                let group = value.and_then(|value| made(text, value));
                let alone = group.filter(|_| declarators.len() == 1);
                let name = text[declared(*declarator).byte_range()].to_owned();
                let of = value.filter(|value| declarators.len() == 1 && value.kind() == "identifier");
                copies.extend(of.map(|of| (name.clone(), &text[of.byte_range()], node.byte_range())));
                found
                    .entry(name)
                    .or_default()
                    .push(alone.map(|(group, parent)| (group, parent, node.byte_range())));
            }
        }
        if let Some((name, value)) = misread(text, node) {
            let group = made(text, value).map(|(group, parent)| (group, parent, node.byte_range()));
            found.entry(name.to_owned()).or_default().push(group);
        }
    }
    let is_block = |parent: &Parent| match parent {
        Parent::Block => true,
        Parent::Named(name) => {
            matches!(found.get(name).map(|places| &places[..]), Some([Some((Group::Block, ..))]))
        }
    };
    let (mut groups, mut edits) = (HashMap::new(), Vec::new());
    for (name, places) in &found {
        if let [Some((group, parent, range))] = &places[..]
            && is_block(parent)
        {
            groups.insert(name.clone(), *group);
            edits.push((range.clone(), ";".to_owned()));
        }
    }
    for (name, of, range) in copies {
        let group = groups.get(of).copied().filter(|_| found[&name].len() == 1);
        if let Some(group) = group {
            groups.insert(name, group);
            edits.push((range, ";".to_owned()));
        }
    }
    (groups, edits)
}

/// Returns the name and the value of a tile whose declaration the parser misreads as two comparisons, `a < 32 > (tile =
/// value)`.
fn misread<'t>(text: &'t str, statement: Node<'t>) -> Option<(&'t str, Node<'t>)> {
    let field =
        |node: Node<'t>, name, kind| node.child_by_field_name(name).filter(|node| node.kind() == kind);
    let comparison = statement.named_child(0).filter(|_| statement.kind() == "expression_statement")?;
    let assignment = field(comparison, "right", "assignment_expression")?;
    let tile =
        text[field(comparison, "left", "binary_expression")?.byte_range()].contains("thread_block_tile");
    let name = field(assignment, "left", "identifier").filter(|_| tile)?;
    Some((&text[name.byte_range()], assignment.child_by_field_name("right")?))
}

/// Returns the group that an expression makes, and its parent.
fn made(text: &str, value: Node<'_>) -> Option<(Group, Parent)> {
    match callee(text, value).filter(|_| value.kind() == "call_expression")? {
        "this_thread_block" => Some((Group::Block, Parent::Block)),
        "tiled_partition" => {
            let parent = value.child_by_field_name("arguments")?.named_child(0)?;
            let parent = match made(text, parent) {
                Some((Group::Block, _)) => Parent::Block,
                _ => Parent::Named(text[parent.byte_range()].to_owned()),
            };
            let function = descendants(value.child_by_field_name("function")?);
            let mut lists = function.filter(|node| node.kind() == "template_argument_list");
            let number = lists.find_map(|list| child_of_kind(list, "number_literal"))?;
            let size = text[number.byte_range()].parse().ok();
            size.filter(|size: &u32| size.is_power_of_two() && *size <= 32)
                .map(|size| (Group::Tile(size), parent))
        }
        _ => None,
    }
}

/// Returns the edits that turn a call into plain CUDA, if it calls a method of a group or passes a group.
fn call(text: &str, node: Node<'_>, groups: &HashMap<String, Group>) -> Option<Vec<Edit>> {
    let (function, arguments) =
        (node.child_by_field_name("function")?, node.child_by_field_name("arguments")?);
    let method = callee(text, node)?;
    let group = |node: Node<'_>| groups.get(&text[node.byte_range()]).copied();
    let values = named(arguments);
    if let Some([of, value, operation]) = reduced(text, node)
        && let Some(Group::Tile(size)) = group(of).filter(|group| !matches!(group, Group::Tile(1)))
    {
        let known = known_operation(text, operation).map(str::to_owned);
        let operation = known.unwrap_or_else(|| own_name(&in_one_line(&text[operation.byte_range()])));
        let value = &text[value.byte_range()];
        return Some(vec![(node.byte_range(), format!("{REDUCE}{operation}_{size}({value})"))]);
    }
    if let ([of, _, ..], "memcpy_async") = (&values[..], method)
        && let Some(Group::Block) = group(*of)
    {
        return Some(vec![(of.byte_range(), BLOCK.to_owned())]);
    }
    if function.kind() != "field_expression" {
        let [value] = values[..] else { return None };
        return Some(vec![(node.byte_range(), group(value)?.plain(method)?)]);
    }
    let group = group(function.child_by_field_name("argument")?)?;
    if values.is_empty() {
        return Some(vec![(node.byte_range(), group.plain(method)?)]);
    }
    let (name, last) = group.meeting(method)?;
    let (start, end) = (arguments.start_byte() + 1, arguments.end_byte() - 1);
    Some(vec![(function.byte_range(), name), (start..start, "0xffffffffu, ".to_owned()), (end..end, last)])
}
