//! `readylb render` of the same objects, in whatever order and form they stand in its input.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

const SERVICES: u64 = 300;

/// The objects of a cluster, as `bench objects` prints them, through `readylb render`.
fn render(form: &[&str]) -> Result<Vec<u8>> {
    let mut objects = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(["objects", "--services", &SERVICES.to_string()])
        .args(form)
        .stdout(Stdio::piped())
        .spawn()?;
    let render = Command::new(env!("CARGO_BIN_EXE_agent-under-test"))
        .args(["render", "--manifests", "-", "--hostname-override", "node-0.example.test", "-o", "json"])
        .stdin(objects.stdout.take().context("no output")?)
        .output()?;
    ensure!(objects.wait()?.success(), "the objects cannot be printed");
    ensure!(render.status.success(), "{}", String::from_utf8_lossy(&render.stderr));
    Ok(render.stdout)
}

#[test]
fn the_bytes_do_not_depend_on_the_order_of_documents() {
    let want = render(&[]).unwrap();
    let document: serde_json::Value = serde_json::from_slice(&want).unwrap();
    let frontends = document["frontends"].as_array().unwrap();
    assert_eq!(frontends.len() as u64, SERVICES);
    assert!(frontends.iter().all(|frontend| frontend["backends"].as_array().unwrap().len() == 10));
    assert_eq!(document["warnings"].as_array().unwrap().len() as u64, SERVICES / 10);

    let forms: [&[&str]; 5] = [
        &["--shuffle", "1"],
        &["--shuffle", "2"],
        &["--format", "yaml-list", "--shuffle", "3"],
        &["--format", "json", "--shuffle", "4"],
        &["--format", "json-list", "--shuffle", "5"],
    ];
    for form in forms {
        assert!(render(form).unwrap() == want, "{form:?} renders differently");
    }
}
