//! Stories of objects and of what the agent makes of them, as text.
//!
//! ```text
//! The heading says what the story shows.
//! === write web.yaml      the manifest is now what follows
//! === remove web.yaml     it is gone
//! === kill                the agent is, and the next one takes over its maps
//! === expect              the tables of `readylb render`, the same as what follows
//! === expect endpoints    the table of `readylb get endpoints`
//! ```
//!
//! A story is read and judged by people: after a change on purpose, `READYLB_ACCEPT_STORIES=1` writes what comes out into
//! the files, for the diff to be read.
//!
//! The maps fail now and then, and after every step hold exactly what the tables say.

use std::{collections::BTreeSet, env, fs, net::SocketAddr, path::Path};

use anyhow::{Context, Result, bail, ensure};
use lb_common::{SlotKey, addr, service::scope};
use lb_userspace::{
    desired::Identity,
    maps::fake::FakeMaps,
    model::Protocol,
    reconcile::{Config, Engine},
    render::{BackendView, Document, table::endpoints_table},
    source::{Event, Feed, SourceEvent, manifest},
};
use tempfile::TempDir;
use tokio::time::Instant;

/// The node on which the stories happen.
pub const NODE: &str = "node-a";

/// Runs the story in a file.
///
/// # Errors
/// The step that is not as expected, with both texts.
pub fn run(path: &Path) -> Result<()> {
    let accepts = env::var_os("READYLB_ACCEPT_STORIES").is_some();
    let text = fs::read_to_string(path)?;
    let mut story = Story::begin()?;
    let mut steps = text.split("\n=== ");
    let mut told = steps.next().unwrap_or_default().trim_end().to_owned() + "\n";
    for (number, step) in steps.enumerate() {
        let (command, body) = step.split_once('\n').unwrap_or((step, ""));
        let got = story
            .step(command.trim(), body)
            .with_context(|| format!("{}, step {}: {command}", path.display(), number + 1))?;
        let got = got.as_deref().unwrap_or(body).trim();
        ensure!(
            accepts || got == body.trim(),
            "{}, step {}: {command}: expected:\n{body}\nbut it is:\n{got}",
            path.display(),
            number + 1
        );
        told += format!("\n=== {command}\n{got}").trim_end();
        told += "\n";
    }
    ensure!(story.expectations > 0, "{} expects nothing", path.display());
    if accepts && told != text {
        fs::write(path, told)?;
    }
    Ok(())
}

struct Story {
    folder: TempDir,
    maps: FakeMaps,
    engine: Engine,
    now: Instant,
    expectations: usize,
}

impl Story {
    fn begin() -> Result<Self> {
        let maps = FakeMaps::new(1);
        let engine = start(&maps)?;
        Ok(Self { folder: TempDir::new()?, maps, engine, now: Instant::now(), expectations: 0 })
    }

    /// Does a step; of one that expects something, tells what there is.
    fn step(&mut self, command: &str, body: &str) -> Result<Option<String>> {
        match command.split_once(' ').unwrap_or((command, "")) {
            ("write", name) => fs::write(self.folder.path().join(name), body)?,
            ("remove", name) => fs::remove_file(self.folder.path().join(name))?,
            ("kill", "") => self.engine = start(&self.maps)?,
            ("expect", "") => {
                let document = self.settle()?;
                // Messages name files; the folder has another name each time.
                let tables = document.to_tables().replace(&format!("{}/", self.folder.path().display()), "");
                self.assert_maps_hold(&document)?;
                self.expectations += 1;
                return Ok(Some(tables));
            }
            ("expect", "endpoints") => {
                self.settle()?;
                self.expectations += 1;
                return Ok(Some(endpoints_table(&self.engine.state().endpoints())));
            }
            _ => bail!("there is no such step"),
        }
        Ok(None)
    }

    /// Says what is in the folder, as a list, and goes on until nothing is left to do.
    fn settle(&mut self) -> Result<Document> {
        let contents = manifest::read(self.folder.path())?;
        let applied = contents.objects.into_values().map(Event::Apply);
        let end = [Event::Warnings(contents.warnings), Event::ListComplete];
        for event in [Event::ListStarted].into_iter().chain(applied).chain(end) {
            self.engine.handle(SourceEvent { feed: Feed(0), event });
        }
        self.engine.step(self.now);
        while let Some(next) = self.engine.next_step(self.now) {
            self.now = next.max(self.now);
            self.engine.step(self.now);
        }
        Ok(self.engine.state().render())
    }

    fn assert_maps_hold(&self, document: &Document) -> Result<()> {
        let sockets = |backends: &[BackendView]| {
            backends.iter().map(|it| SocketAddr::new(it.address, it.port)).collect::<BTreeSet<_>>()
        };
        let want: BTreeSet<_> = document
            .frontends
            .iter()
            .filter(|frontend| frontend.withheld.is_none())
            .flat_map(|frontend| {
                let outside = Some((scope::ANY, sockets(&frontend.backends)));
                let inside = frontend.inside_backends.as_ref().map(|it| (scope::INSIDE, sockets(it)));
                let address = SocketAddr::new(frontend.address, frontend.port);
                let entry = move |(scope, backends)| (address, frontend.protocol, scope, backends);
                outside.into_iter().chain(inside).map(entry)
            })
            .collect();
        let holds = self.maps.holds();
        let mut held = BTreeSet::new();
        for (key, value) in holds.services.iter().filter(|(key, _)| !key.is_whole()) {
            let mut backends = BTreeSet::new();
            for slot in 0..value.set.count {
                let slot = SlotKey { block: value.set.block, slot, pad: 0 };
                let backend =
                    holds.backends.get(&slot).context("a frontend leads to a slot that is missing")?;
                backends.insert(SocketAddr::new(addr::to_ip(&backend.address), backend.port));
            }
            let protocol = Protocol::from_number(key.proto).context("a protocol that there is not")?;
            held.insert((
                SocketAddr::new(addr::to_ip(&key.address), key.port),
                protocol,
                key.scope,
                backends,
            ));
        }
        ensure!(held == want, "the maps hold {held:#?}\nand not {want:#?}");
        Ok(())
    }
}

fn start(maps: &FakeMaps) -> Result<Engine> {
    let identity = Identity::of(NODE);
    let config = Config { identity, feeds: 1, optional: Vec::new(), remembered: Vec::new() };
    Ok(Engine::start(Box::new(maps.clone()), config)?)
}
