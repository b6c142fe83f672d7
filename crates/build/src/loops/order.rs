//! Finds out whether we can tell apart the places in memory that a thread touches between two meetings.
//!
//! Between two meetings threads have no order, so we would like to tell the compiler that it may run them in any order,
//! with `#pragma GCC ivdep`. But then GCC also reorders what a *single* thread does, if it cannot compare two places.
//! For example, a thread may run `l[0] = 1; l[k] = 2; x = l[0];`. If `k` is 0, `x` must be 2, but GCC may give it 1.
//! (GCC 12.2 does that after `#pragma GCC ivdep` and after `#pragma omp simd`.)
//!
//! So we only use the pragma if no thread changes a place that could be the same as another place that it touches. We
//! compare places as text: `tile[y][x]` and `tile[y][x + 1]` differ only by a constant, so they are fine. `l[0]` and
//! `l[k]` are not.

use std::collections::{HashMap, HashSet};

use tree_sitter::Node;

use super::row_facts::beside_constant;
use super::variables::{Variable, Variables};
use super::waits::callee;
use crate::parse::{children, named};

/// The places in memory that some part of a loop touches.
#[derive(Clone, Default)]
pub(super) struct Accesses {
    arrays: HashMap<String, Array>,
    /// The variables that it changes.
    changed: HashSet<String>,
    /// The variables that it counts in a loop's head.
    counted: HashSet<String>,
    /// True if it reads a place that we know nothing about.
    reads_unknown: bool,
    /// True if it could change such a place.
    writes_unknown: bool,
}

/// The places in one array.
#[derive(Clone, Default)]
struct Array {
    /// The text of each place. The key is its index without added constants, because places with the same key can be
    /// compared.
    places: HashMap<String, HashSet<String>>,
    /// The identifiers in the indices.
    words: HashSet<String>,
    is_written: bool,
    /// True if each thread has its own such array.
    is_own: bool,
}

impl Accesses {
    /// Returns the places that some part of the kernel touches.
    pub(super) fn of<'t>(variables: &Variables<'_, 't>, part: Node<'t>) -> Self {
        let mut look = Look { variables, found: Self::default() };
        look.at(part);
        look.found
    }

    /// Adds all elements of an array as written.
    pub(super) fn initialise(&mut self, array: &str) {
        let array = self.arrays.entry(array.to_owned()).or_default();
        array.places.entry(String::new()).or_default();
        (array.is_written, array.is_own) = (true, true);
    }

    /// Returns true if a thread may touch the places of these parts in any order.
    pub(super) fn in_any_order<'a>(parts: impl IntoIterator<Item = &'a Self>) -> bool {
        let mut all = Self::default();
        for part in parts {
            for (name, array) in &part.arrays {
                let joined = all.arrays.entry(name.clone()).or_default();
                for (indices, places) in &array.places {
                    joined.places.entry(indices.clone()).or_default().extend(places.iter().cloned());
                }
                joined.words.extend(array.words.iter().cloned());
                joined.is_written |= array.is_written;
                joined.is_own |= array.is_own;
            }
            all.changed.extend(part.changed.iter().cloned());
            all.counted.extend(part.counted.iter().cloned());
            all.reads_unknown |= part.reads_unknown;
            all.writes_unknown |= part.writes_unknown;
        }
        let mut written = all.arrays.iter().filter(|(_, array)| array.is_written).peekable();
        let reads_only_known = !all.reads_unknown || written.peek().is_none();
        // GCC would only change the order to combine accesses to neighbouring places.
        let apart = |array: &Array| {
            let alone = array.places.values().all(|places| places.len() == 1);
            alone && !array.is_own && array.words.is_disjoint(&all.counted)
        };
        let changes = |word: &String| {
            all.changed.contains(word) || all.arrays.get(word).is_some_and(|array| array.is_written)
        };
        let known = |(name, array): (&String, &Array)| {
            let stays = !all.changed.contains(name) && !array.words.iter().any(changes);
            stays && (array.places.len() == 1 || apart(array))
        };
        !all.writes_unknown && reads_only_known && written.all(known)
    }
}

/// Walks through a part of the kernel and collects places.
struct Look<'l, 't> {
    variables: &'l Variables<'l, 't>,
    found: Accesses,
}

impl<'t> Look<'_, 't> {
    fn str(&self, node: Node<'_>) -> &'t str {
        self.variables.str(node)
    }

    fn at(&mut self, node: Node<'t>) {
        let field = |name| node.child_by_field_name(name);
        match node.kind() {
            "assignment_expression" => self.target(field("left")),
            "update_expression" => self.target(field("argument")),
            "subscript_expression" | "field_expression" => return self.place(node, false),
            "pointer_expression" if self.str(node).starts_with('&') => self.found.writes_unknown = true,
            "pointer_expression" => self.found.reads_unknown = true,
            "call_expression" => self.call(node),
            "identifier" => self.name(node),
            "reference_declarator" | "lambda_expression" | "new_expression" | "delete_expression" => {
                self.found.writes_unknown = true;
            }
            _ => {}
        }
        for child in children(node) {
            self.at(child);
        }
    }

    /// Adds what an assignment changes.
    fn target(&mut self, target: Option<Node<'t>>) {
        let Some(target) = target else { return };
        match target.kind() {
            "identifier" => {
                let counts = target.parent().is_some_and(|change| {
                    let around = change.parent();
                    around.is_some_and(|around| around.child_by_field_name("update") == Some(change))
                });
                if counts {
                    self.found.counted.insert(self.str(target).to_owned());
                } else {
                    self.change(target);
                }
            }
            "subscript_expression" | "field_expression" => self.place(target, true),
            "parenthesized_expression" => self.target(target.named_child(0)),
            _ => self.found.writes_unknown = true,
        }
    }

    /// Adds a variable that changes, or whose field does.
    fn change(&mut self, name: Node<'t>) {
        let is_lent = self.variables.meant(name).is_some_and(|index| self.variables.is_lent(index));
        self.found.writes_unknown |= is_lent || self.variables.waits.memory().contains(self.str(name));
        self.found.changed.insert(self.str(name).to_owned());
    }

    /// Adds an element or a field.
    fn place(&mut self, place: Node<'t>, is_written: bool) {
        let (mut indices, mut words) = (Vec::new(), HashSet::new());
        let (mut whole, mut known) = (place, true);
        while let Some(inner) = whole.child_by_field_name("argument") {
            match whole.kind() {
                "subscript_expression" => {
                    // If a field has elements, it could be a pointer.
                    known &= inner.kind() != "field_expression";
                    for index in whole.child_by_field_name("indices").map(named).unwrap_or_default() {
                        self.at(index);
                        let index = beside_constant(index);
                        words.extend(self.variables.waits.words(self.variables.text, index));
                        let is_constant = index.kind() == "number_literal";
                        indices.push(if is_constant { "" } else { self.str(index) });
                    }
                }
                "field_expression" => known &= !self.str(whole).contains("->"),
                _ => break,
            }
            whole = inner;
        }
        let name = self.str(whole);
        if whole.kind() != "identifier" {
            self.at(whole);
        } else if indices.is_empty() && known && !self.variables.waits.memory().contains(name) {
            if is_written {
                self.change(whole);
            }
            return self.name(whole);
        }
        match self.variables.array(whole).filter(|_| known) {
            Some((array, is_own)) => {
                let array = self.found.arrays.entry(array.to_owned()).or_default();
                let places = array.places.entry(indices.join("][")).or_default();
                places.insert(self.variables.str(place).to_owned());
                array.words.extend(words);
                array.is_own |= is_own;
                array.is_written |= is_written;
            }
            None if is_written => self.found.writes_unknown = true,
            None => self.found.reads_unknown = true,
        }
    }

    /// Adds what a call could do.
    fn call(&mut self, call: Node<'t>) {
        let is_plain =
            callee(self.variables.text, call).is_some_and(|name| self.variables.waits.is_plain(name));
        self.found.writes_unknown |= !is_plain || !self.variables.keeps_arguments(call);
    }

    /// Adds what a name could mean, if it is more than a value.
    fn name(&mut self, name: Node<'t>) {
        let waits = self.variables.waits;
        self.found.reads_unknown |= waits.memory().contains(self.str(name));
        self.found.writes_unknown |= self.variables.is_address(name) || !waits.is_plain(self.str(name));
    }
}

impl<'t> Variables<'_, 't> {
    /// Returns the array that a name means, if no other name can mean the same. Also returns true if each thread has
    /// its own. Otherwise it is shared memory, or memory behind a parameter.
    fn array(&self, name: Node<'_>) -> Option<(&'t str, bool)> {
        let text = &self.text[name.byte_range()];
        let Some(index) = self.meant(name) else {
            return (self.is_shared(text) && !self.is_one_of_several(text)).then_some((text, false));
        };
        let Variable { declaration, ty, extents, storable, .. } = &self.list[index];
        let is_parameter = declaration.is_none() && *storable && ty.matches('*').count() == 1;
        let is_own = *storable && !extents.is_empty() && !ty.contains('*');
        (is_parameter || is_own).then_some((text, is_own))
    }

    /// Returns true if a name stands for an address. If it is used without an index, for example in `int* p = tile`,
    /// the memory may get a second name.
    fn is_address(&self, name: Node<'_>) -> bool {
        let leads = |index: usize| {
            let Variable { ty, extents, declarator, .. } = &self.list[index];
            ty.contains('*') || !extents.is_empty() || self.text[declarator.byte_range()].starts_with('&')
        };
        let by_macro = || self.in_macro(name).into_iter().any(leads);
        self.meant(name).map_or_else(by_macro, leads) || self.is_shared(&self.text[name.byte_range()])
    }
}
