//! Calls cargo, and finds the executables it built.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use serde_json::Value;

/// Returns a command for the cargo that runs this task, in the workspace's folder.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(crate::workspace());
    command
}

/// Runs a command with this task's own input and output.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("cannot run {name}"))?;
    ensure!(status.success(), "{name} failed ({status})");
    Ok(())
}

/// An executable that cargo built.
pub(crate) struct Executable {
    /// The name of the test, example or program.
    pub(crate) name: String,
    /// The kind of the target: `test`, `example` or `bin`.
    pub(crate) kind: String,
    pub(crate) path: PathBuf,
}

/// Runs a cargo command that builds, and returns the executables that it made or found up to date.
pub(crate) fn build(command: &mut Command) -> anyhow::Result<Vec<Executable>> {
    let command = command.arg("--message-format=json-render-diagnostics").stdout(Stdio::piped());
    let output =
        command.spawn().and_then(std::process::Child::wait_with_output).context("cannot run cargo")?;
    ensure!(output.status.success(), "cargo failed ({})", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(|line| executable(&serde_json::from_str(line).ok()?)).collect())
}

fn executable(message: &Value) -> Option<Executable> {
    Some(Executable {
        name: message["target"]["name"].as_str()?.to_owned(),
        kind: message["target"]["kind"][0].as_str()?.to_owned(),
        path: message["executable"].as_str()?.into(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::executable;

    #[test]
    fn only_messages_about_executables_count() {
        let library = json!({ "reason": "compiler-artifact", "target": { "name": "a", "kind": ["lib"] }, "executable": null });
        assert!(executable(&library).is_none());
        assert!(executable(&json!({ "reason": "build-finished", "success": true })).is_none());
        let program = json!({ "target": { "name": "a", "kind": ["bin"] }, "executable": "/t/a" });
        let program = executable(&program).unwrap();
        assert_eq!((program.name.as_str(), program.kind.as_str()), ("a", "bin"));
    }
}
