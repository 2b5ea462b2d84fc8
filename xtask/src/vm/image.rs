//! What a guest boots: its kernel, and an initial file system with the binaries and the libraries that they load.

use std::{
    fs::{self, File},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use super::modules;
use crate::bpf::command::output;

/// The first process of a guest.
const INIT: &str = include_str!("init.sh");

/// Files to boot from.
pub(super) struct Image {
    /// The compressed kernel.
    pub(super) kernel: PathBuf,
    /// The archive that becomes the root file system.
    pub(super) initramfs: PathBuf,
}

impl Image {
    /// Makes one in `cache`, anew each time: the binaries have changed.
    pub(super) fn make(cache: &Path, suite: &str, unpacked: &Path, binaries: &Path) -> Result<Self> {
        let files = files(unpacked)?;
        let is_kernel = |path: &&PathBuf| {
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"vmlinuz"))
        };
        let kernel = files.iter().find(is_kernel).context("the packages of the kernel have no vmlinuz")?;
        let root = cache.join(format!("{suite}.root"));
        // What the run before has left.
        let _ = fs::remove_dir_all(&root);
        for folder in ["proc", "sys", "dev", "tmp", "run", "modules", "bin"] {
            fs::create_dir_all(root.join(folder))?;
        }
        for (source, name) in [
            (binaries.join("readylb"), "readylb"),
            (binaries.join("vm-guest"), "vm-guest"),
            (in_path("ip")?, "ip"),
            (in_path("busybox")?, "busybox"),
        ] {
            program(&root, &source, name)?;
        }
        symlink("busybox", root.join("bin/sh"))?;
        // Loaded in the order of their names.
        for (number, (name, contents)) in modules::read(unpacked)?.into_iter().enumerate() {
            fs::write(root.join(format!("modules/{number:02}-{name}.ko")), contents)?;
        }
        write_program(&root.join("init"), INIT.as_bytes())?;
        let initramfs = cache.join(format!("{suite}.cpio"));
        archive(&root, &initramfs)?;
        Ok(Self { kernel: kernel.clone(), initramfs })
    }
}

/// Copies a program without what is for debuggers, and the libraries that it loads to where it looks for them.
fn program(root: &Path, source: &Path, name: &str) -> Result<()> {
    let to = root.join("bin").join(name);
    output(Command::new("strip").arg("--strip-debug").arg("-o").args([to.as_path(), source]))?;
    // `ldd` fails on what is linked statically.
    let said = Command::new("ldd").arg(source).output().context("`ldd` cannot be started")?;
    for library in libraries(&String::from_utf8_lossy(&said.stdout)) {
        let to = root.join(library.strip_prefix("/").unwrap_or(&library));
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::copy(&library, to).with_context(|| format!("{} cannot be copied", library.display()))?;
    }
    Ok(())
}

/// The files in the output of `ldd`: `NAME => PATH (ADDRESS)`, or `PATH (ADDRESS)` for the loader.
fn libraries(said: &str) -> Vec<PathBuf> {
    let paths = said.lines().filter_map(|line| {
        let place = line.split_once("=>").map_or(line, |(_, place)| place);
        place.split_whitespace().next().filter(|word| word.starts_with('/'))
    });
    paths.map(PathBuf::from).collect()
}

fn write_program(path: &Path, text: &[u8]) -> Result<()> {
    fs::write(path, text)?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

/// Packs a folder as kernels take it.
fn archive(root: &Path, file: &Path) -> Result<()> {
    let mut shell = Command::new("busybox");
    shell.current_dir(root).args(["sh", "-c", "busybox find . | busybox cpio -o -H newc"]);
    let status = shell.stdout(File::create(file)?).stderr(std::process::Stdio::null()).status()?;
    if !status.success() {
        bail!("{} cannot be written ({status})", file.display());
    }
    Ok(())
}

fn in_path(name: &str) -> Result<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&folders).map(|folder| folder.join(name));
    places.find(|path| path.is_file()).with_context(|| format!("no {name} in PATH"))
}

/// Every file below a folder; links are not followed.
pub(super) fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries =
            fs::read_dir(&folder).with_context(|| format!("{} cannot be read", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_those_that_are_files() {
        let said = "\tlinux-vdso.so.1 (0x00007ffe)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x00007f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n\tlibgone.so => not found\n";
        assert_eq!(
            libraries(said),
            [Path::new("/lib/x/libc.so.6"), Path::new("/lib64/ld-linux-x86-64.so.2")]
        );
        assert!(libraries("\tnot a dynamic executable\n").is_empty());
    }
}
