//! The modules that a guest loads, with those that they need, in order.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

/// What a node with pods has: veth pairs on a bridge, places for tc programs, and lists of sockets.
const WANTED: [&str; 7] = ["veth", "bridge", "sch_ingress", "cls_bpf", "inet_diag", "tcp_diag", "udp_diag"];

/// A module in the order of loading: its name and contents.
pub(super) type Module = (String, Vec<u8>);

/// Reads [`WANTED`] from the unpacked packages of a kernel.
pub(super) fn read(unpacked: &Path) -> Result<Vec<Module>> {
    let files = super::image::files(unpacked)?;
    let builtin = files.iter().find(|path| path.ends_with("modules.builtin"));
    let builtin = builtin.map(fs::read_to_string).transpose()?.unwrap_or_default();
    let is_builtin =
        |name: &str| builtin.lines().any(|line| module_name(Path::new(line)) == Some(name.to_owned()));
    let mut modules = Vec::new();
    for name in WANTED {
        load_order(name, &mut modules, &is_builtin, &|name| {
            let file = files.iter().find(|path| module_name(path).as_deref() == Some(name));
            contents(file.with_context(|| format!("this kernel has no module {name}"))?)
        })?;
    }
    Ok(modules)
}

/// Adds a module behind everything that it depends on.
fn load_order(
    name: &str,
    modules: &mut Vec<Module>,
    is_builtin: &dyn Fn(&str) -> bool,
    read: &dyn Fn(&str) -> Result<Vec<u8>>,
) -> Result<()> {
    if is_builtin(name) || modules.iter().any(|(other, _)| other == name) {
        return Ok(());
    }
    let contents = read(name)?;
    for needed in depends(&contents) {
        load_order(&needed, modules, is_builtin, read)?;
    }
    modules.push((name.to_owned(), contents));
    Ok(())
}

/// The name of the module in a file; the kernel reads `-` as `_`.
fn module_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let stem = name.strip_suffix(".ko").or(name.strip_suffix(".ko.xz"))?;
    Some(stem.replace('-', "_"))
}

fn contents(path: &PathBuf) -> Result<Vec<u8>> {
    if path.extension() != Some("xz".as_ref()) {
        return fs::read(path).with_context(|| format!("{} cannot be read", path.display()));
    }
    let out = Command::new("xz").arg("-dc").arg(path).output().context("`xz` cannot be started")?;
    if !out.status.success() {
        bail!("{} cannot be unpacked: {}", path.display(), String::from_utf8_lossy(&out.stderr).trim());
    }
    Ok(out.stdout)
}

/// What the section `.modinfo` says a module depends on: `depends=stp,llc`, between zero bytes.
fn depends(module: &[u8]) -> Vec<String> {
    let entry = module.split(|&byte| byte == 0).find_map(|entry| entry.strip_prefix(b"depends="));
    let names = String::from_utf8_lossy(entry.unwrap_or_default()).replace('-', "_");
    names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_module_needs_is_loaded_before_it_and_once() {
        let read = |name: &str| {
            let entry = match name {
                "bridge" => "license=GPL\0depends=stp,llc\0name=bridge",
                "stp" => "\0depends=llc\0",
                "llc" => "\0depends=\0",
                "cls" => "\0depends=built-in,llc\0",
                other => bail!("no module {other}"),
            };
            Ok(entry.as_bytes().to_vec())
        };
        let mut modules = Vec::new();
        for name in ["bridge", "cls"] {
            load_order(name, &mut modules, &|name| name == "built_in", &read).unwrap();
        }
        assert_eq!(
            modules.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            ["llc", "stp", "bridge", "cls"]
        );
        assert!(load_order("other", &mut modules, &|_| false, &read).is_err());
        assert_eq!(module_name(Path::new("kernel/net/sched/cls-bpf.ko.xz")).as_deref(), Some("cls_bpf"));
        assert_eq!(module_name(Path::new("modules.builtin")), None);
    }
}
