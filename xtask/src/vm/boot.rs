//! One boot of a guest, from power on to its line of results.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use super::{image::Image, report::Results};

/// How long a guest may take in all. They take about half a minute on an idle machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// The guest's program begins its line of results so.
const MARK: &str = "READYLB-VM ";

/// Lines of the console that are shown of a guest that has not told its results.
const SHOWN: usize = 40;

/// Kills the emulator, whatever happens.
struct Guest(Child);

impl Drop for Guest {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Boots a guest and reads its results from the serial console.
pub(super) fn boot(image: &Image) -> Result<Results> {
    let mut qemu = Command::new("qemu-system-x86_64");
    // Nested virtualization is not there on every machine, and this is fast enough.
    qemu.args(["-accel", "tcg", "-cpu", "max", "-smp", "2", "-m", "1024", "-no-reboot", "-nodefaults"]);
    qemu.args(["-display", "none", "-serial", "stdio"]);
    qemu.args(["-append", "console=ttyS0 quiet panic=-1"]);
    qemu.arg("-kernel").arg(&image.kernel).arg("-initrd").arg(&image.initramfs);
    qemu.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut guest = Guest(qemu.spawn().context("`qemu-system-x86_64` cannot be started")?);
    let console = guest.0.stdout.take().context("a guest without a console")?;
    let (line, lines) = mpsc::channel();
    thread::spawn(move || {
        for text in BufReader::new(console).split(b'\n').map_while(Result::ok) {
            if line.send(String::from_utf8_lossy(&text).trim_end().to_owned()).is_err() {
                break;
            }
        }
    });
    let deadline = Instant::now() + PATIENCE;
    let mut said = Vec::new();
    let end = loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(text) => match text.split_once(MARK) {
                Some((_, results)) => {
                    return serde_json::from_str(results)
                        .with_context(|| format!("the guest's results cannot be read: {results}"));
                }
                None => said.push(text),
            },
            Err(mpsc::RecvTimeoutError::Timeout) => break format!("not within {} s", PATIENCE.as_secs()),
            Err(mpsc::RecvTimeoutError::Disconnected) => break "and has ended".to_owned(),
        }
    };
    let last = said[said.len().saturating_sub(SHOWN)..].join("\n  ");
    bail!("the guest has told no results, {end}; the end of its console:\n  {last}")
}
