//! A compiler, or what ranks need: whether this machine has it, and how to get it.

use gpustream_build::toolchain;
use serde_json::{Value, json};

pub(super) struct Tool {
    pub(super) name: &'static str,
    what: &'static str,
    pub(super) search: Result<Found, Missing>,
}

#[derive(Default)]
pub(super) struct Found {
    pub(super) version: String,
    pub(super) path: Option<String>,
    /// Where we found the compiler, if it can be in several places.
    pub(super) by: Option<String>,
    /// The targets that the compiler can build for.
    pub(super) targets: Vec<String>,
    /// Whether builds use the compiler only if there is such a GPU, or if you tell them to.
    pub(super) on_demand: bool,
}

pub(super) struct Missing {
    pub(super) tried: Vec<String>,
    /// The way to get it.
    pub(super) how: &'static str,
}

impl From<toolchain::Missing> for Missing {
    fn from(missing: toolchain::Missing) -> Self {
        Self { tried: missing.tried, how: missing.how }
    }
}

impl Tool {
    pub(super) fn new(name: &'static str, what: &'static str, search: Result<Found, Missing>) -> Self {
        Self { name, what, search }
    }

    pub(super) fn state(&self) -> &str {
        self.search.as_ref().map_or("not found", |found| &found.version)
    }

    pub(super) fn details(&self) -> Vec<(&'static str, String)> {
        let mut details = vec![("for", self.what.to_owned())];
        let found = match &self.search {
            Ok(found) => found,
            Err(missing) => {
                details.extend(missing.tried.iter().map(|tried| ("tried", tried.clone())));
                return details;
            }
        };
        if let Some(path) = &found.path {
            let by = found.by.as_ref().filter(|by| !path.starts_with(*by));
            let by = by.map(|by| format!(" (by {by})")).unwrap_or_default();
            details.push(("path", format!("{path}{by}")));
        }
        if found.on_demand {
            details.push(("used", "if there is such a GPU, or if GPUSTREAM_BACKENDS asks for it".to_owned()));
        }
        if !found.targets.is_empty() {
            details.push(("builds", found.targets.join(" ")));
        }
        details
    }

    pub(super) fn json(&self) -> Value {
        let (found, missing) = (self.search.as_ref().ok(), self.search.as_ref().err());
        json!({
            "name": self.name,
            "purpose": self.what,
            "version": found.map(|found| &found.version),
            "path": found.and_then(|found| found.path.as_ref()),
            "found_by": found.and_then(|found| found.by.as_ref()),
            "targets": found.map(|found| &found.targets),
            "used_by_default": found.map(|found| !found.on_demand),
            "tried": missing.map_or(&[][..], |missing| &missing.tried),
            "how_to_get": missing.map(|missing| missing.how),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_tool_tells_what_was_tried() {
        let missing = Missing { tried: vec!["mpirun: no such file".into()], how: "install one" };
        let tool = Tool::new("MPI", "starts", Err(missing));
        assert!(tool.details().contains(&("tried", "mpirun: no such file".into())));
        assert_eq!(tool.json()["how_to_get"], json!("install one"));
        let found = Found { version: "4".into(), path: Some("/usr/bin/mpirun".into()), ..Found::default() };
        let tool = Tool::new("MPI", "starts", Ok(found));
        assert_eq!((&tool.json()["version"], &tool.json()["how_to_get"]), (&json!("4"), &Value::Null));
    }
}
