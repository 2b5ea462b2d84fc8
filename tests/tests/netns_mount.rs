//! The BPF file system that readylb mounts where none is. Alone in its binary: a test beside it that starts a process
//! lends that process every open folder for a moment, and a file system with an open folder cannot be unmounted.

use std::{fs, path::Path, thread};

use anyhow::{Result, ensure};
use lb_tests::datapath::config;
use lb_userspace::{
    datapath::{Datapath, TcAttach, Trace, cleanup},
    object::OBJECT,
};
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};

#[test]
fn a_file_system_that_was_mounted_for_the_pins_is_unmounted_with_them() {
    let mount_points = thread::spawn(|| {
        // A machine of its own as far as mounts go, with a /sys/fs/bpf on which nothing is mounted.
        unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET)?;
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)?;
        mount(Some("none"), "/sys/fs/bpf", Some("tmpfs"), MsFlags::empty(), None::<&str>)?;
        let mounts = || -> Result<usize> {
            let all = fs::read_to_string("/proc/thread-self/mountinfo")?;
            Ok(all.lines().filter(|line| line.contains(" /sys/fs/bpf ")).count())
        };
        let before = mounts()?;
        let root = Path::new("/sys/fs/bpf/readylb");
        drop(Datapath::open(OBJECT, &config(root, TcAttach::Tcx))?);
        let during = mounts()?;
        // A second start finds it mounted.
        drop(Datapath::open(OBJECT, &config(root, TcAttach::Tcx))?);
        ensure!(mounts()? == during, "mounted twice");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let report = runtime.block_on(cleanup(root, false))?;
        Ok((before, during, mounts()?, report))
    });
    let (before, during, after, report) = mount_points.join().unwrap().unwrap();
    assert_eq!([before, during, after], [1, 2, 1]);
    assert_eq!(report.removed.last(), Some(&(Trace::Mount, "/sys/fs/bpf".to_owned())));
}
