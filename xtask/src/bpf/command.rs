//! Child processes whose failure becomes one sentence.

use std::{
    env,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};

/// The cargo that runs this process, else the one in PATH, to be run in `folder`.
pub(crate) fn cargo(folder: &Path, verb: &str) -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(folder).arg(verb);
    cargo
}

/// The command as it would be typed, without its environment.
fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Runs `command` on this terminal. An exit status other than 0 is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("`{}` cannot be started", line(command)))?;
    if !status.success() {
        bail!("`{}` failed ({status})", line(command));
    }
    Ok(())
}

/// Runs `command` and returns its standard output. The error of a failed one has the line in which it says why.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let out = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("`{}` cannot be started", line(command)))?;
    if !out.status.success() {
        let stderr = String::from_utf8_lossy(&out.stderr);
        bail!("`{}` failed ({}): {}", line(command), out.status, cause(&stderr));
    }
    String::from_utf8(out.stdout)
        .with_context(|| format!("`{}` printed something other than text", line(command)))
}

/// The first line that calls itself an error, as those of rustup, cargo and apt do; else the last one.
fn cause(stderr: &str) -> &str {
    let mut lines = stderr.lines().map(str::trim).filter(|line| !line.is_empty());
    let marked = lines.clone().find_map(|line| line.strip_prefix("error: ").or(line.strip_prefix("E: ")));
    marked.or(lines.next_back()).unwrap_or("no message")
}
