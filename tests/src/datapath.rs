//! The datapath without its agent: opened, kept on interfaces for a while, left behind; and what is then on interfaces.

use std::{collections::BTreeMap, path::Path, time::Duration};

use anyhow::{Context, Result};
use aya::programs::loaded_programs;
use lb_userspace::{
    datapath::{Attachments, Config, Datapath, Hook, Keeper, SIZABLE, Selection, SocketLb, TcAttach},
    object::OBJECT,
    sys::tcx_query,
};
use serde_json::Value;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use crate::netns::Namespace;

/// How long a test waits for something that happens at once unless it is broken.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// Entries of each sizable map in tests, so that many datapaths fit into one machine.
pub const MAP_SIZE: u32 = 1024;

/// Small maps under `bpf_root`.
pub fn config(bpf_root: &Path, tc_attach: TcAttach) -> Config {
    let map_sizes = SIZABLE.map(|name| (name.to_owned(), MAP_SIZE)).into();
    Config { map_sizes, ..default_config(bpf_root, tc_attach) }
}

/// Maps of the default size under `bpf_root`, for tests with thousands of connections. No socket is served: that would be on
/// the cgroup of every process of the machine.
pub fn default_config(bpf_root: &Path, tc_attach: TcAttach) -> Config {
    let bpf_root = bpf_root.to_owned();
    Config { bpf_root, tc_attach, socket_lb: SocketLb::Off, ..Config::default() }
}

/// What is known about interfaces while a datapath is kept on them.
pub struct Life {
    attachments: watch::Receiver<Attachments>,
}

impl Life {
    /// Waits until it is as asked.
    ///
    /// # Errors
    /// What it was at the deadline instead.
    pub async fn until(&mut self, what: &str, is: impl Fn(&Attachments) -> bool) -> Result<Attachments> {
        let reached = timeout(DEADLINE, self.attachments.wait_for(|now| is(now))).await;
        let found = reached.map(|found| found.map(|found| found.clone()));
        found.with_context(|| format!("not {what}: {:?}", *self.attachments.borrow()))?.map_err(Into::into)
    }

    /// Waits until something is true that nobody reports.
    ///
    /// # Errors
    /// That it is not, at the deadline.
    pub async fn until_true(&self, what: &str, is: impl Fn() -> Result<bool>) -> Result<()> {
        let reached = async {
            while !is()? {
                sleep(Duration::from_millis(10)).await;
            }
            Ok(())
        };
        timeout(DEADLINE, reached).await.with_context(|| format!("not {what}"))?
    }

    /// Waits until the programs are on exactly these interfaces.
    ///
    /// # Errors
    /// Where they were at the deadline instead.
    pub async fn until_on(&mut self, names: &[&str]) -> Result<Attachments> {
        let both = |state: &lb_userspace::datapath::InterfaceState| state.hooks.len() == 2;
        self.until(&format!("on {names:?}"), |now| {
            let mut on: Vec<&str> =
                now.interfaces.iter().filter(|state| both(state)).map(|state| state.name.as_str()).collect();
            on.sort_unstable();
            now.complete && on == names
        })
        .await
    }
}

/// Opens a datapath on a host, keeps it on the interfaces that match `patterns` while `during` runs, and leaves it
/// behind. With `killed`, no destructor runs but the one that gives up the lock, which the kernel does for a process
/// that was killed.
pub fn live<T: Send>(
    host: &Namespace,
    config: &Config,
    patterns: &[&str],
    killed: bool,
    during: impl AsyncFnOnce(&mut Life) -> Result<T> + Send,
) -> Result<T> {
    host.block_on(async || {
        let datapath = Datapath::open(OBJECT, config)?;
        let selection = Selection::from_patterns(patterns.iter().copied())?;
        let (keeper, attachments) = Keeper::new(datapath.attacher()?, selection)?;
        let mut life = Life { attachments };
        let mut kept = Box::pin(keeper.run());
        let result = tokio::select! {
            () = &mut kept => unreachable!("it runs until it is dropped"),
            result = during(&mut life) => result,
        };
        if killed {
            std::mem::forget(kept);
        }
        result
    })
}

/// The programs at a hook of an interface, in the order in which they run: `tcx NAME` and `filter NAME`.
///
/// # Errors
/// Where the interface is missing.
pub fn programs_at(host: &Namespace, interface: &str, hook: Hook) -> Result<Vec<String>> {
    let ifindex = host.ifindex(interface)?;
    let names = program_names();
    let name = |id| names.get(&id).map_or("unloaded", String::as_str);
    let tcx = host.run(|| tcx_query(ifindex, hook.tcx_place()))?;
    let tcx = tcx.iter().map(|program| format!("tcx {}", name(program.program_id)));
    let filters: Value =
        serde_json::from_str(&host.sh(&format!("tc -json filter show dev {interface} {}", hook.name()))?)?;
    let filters = filters.as_array().into_iter().flatten();
    let filters = filters.filter_map(|filter| filter["options"]["prog"]["id"].as_u64());
    let filters = filters.map(|id| format!("filter {}", u32::try_from(id).map_or("unloaded", name)));
    Ok(tcx.chain(filters).collect())
}

/// The ids of the TCX links at a hook of an interface.
///
/// # Errors
/// Where the interface is missing.
pub fn links_at(host: &Namespace, interface: &str, hook: Hook) -> Result<Vec<u32>> {
    let ifindex = host.ifindex(interface)?;
    Ok(host.run(|| tcx_query(ifindex, hook.tcx_place()))?.iter().map(|program| program.link_id).collect())
}

fn program_names() -> BTreeMap<u32, String> {
    let named = |program: aya::programs::ProgramInfo| {
        Some((program.id(), program.name_as_str().filter(|name| !name.is_empty())?.to_owned()))
    };
    loaded_programs().flatten().filter_map(named).collect()
}
