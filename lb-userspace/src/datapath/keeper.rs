//! Keeps the programs on the chosen interfaces and on the cgroup, whatever comes and goes.

use std::{collections::BTreeMap, io, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval_at, sleep},
};
use tracing::{info, warn};

use super::{
    Attacher, Hook, Mode, SocketState,
    interfaces::{Role, Selection},
    links::{LinkEvent, LinkWatch},
    tracker::{Change, Chosen, Tracker},
};

/// How often every interface is looked after again: one that failed is tried once more, and a program that somebody has
/// removed comes back.
const CHECK_INTERVAL: Duration = Duration::from_secs(15);

/// How long to wait before the netlink socket is opened again after it broke.
const REOPEN_DELAY: Duration = Duration::from_secs(1);

/// An interface that the programs belong on, and how it is with them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceState {
    /// Name.
    pub name: String,
    /// Index in the agent's network namespace.
    pub ifindex: u32,
    /// Why it is chosen.
    pub role: Role,
    /// It leads out of the node by its kind.
    pub uplink: bool,
    /// Where the programs are.
    pub hooks: Vec<Hook>,
    /// How they are there.
    pub mode: Mode,
    /// Why one of them is missing.
    pub error: Option<String>,
}

/// Where the programs are now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachments {
    /// Whether every interface that was there at the beginning has been seen to.
    pub complete: bool,
    /// Sorted by index.
    pub interfaces: Vec<InterfaceState>,
    /// The calls of sockets.
    pub sockets: SocketState,
}

/// The task of this module. Dropping it leaves the programs where they are.
pub struct Keeper {
    attacher: Attacher,
    tracker: Tracker,
    links: LinkWatch,
    states: BTreeMap<u32, InterfaceState>,
    sockets: SocketState,
    complete: bool,
    report: watch::Sender<Attachments>,
}

impl Keeper {
    /// Keeps the programs on the selected interfaces of this thread's network namespace, once [`Self::run`] runs. The
    /// receiver holds what is known. Call within a tokio runtime.
    ///
    /// # Errors
    /// Where the kernel does not say which links there are.
    pub fn new(attacher: Attacher, selection: Selection) -> io::Result<(Self, watch::Receiver<Attachments>)> {
        let (report, reported) = watch::channel(Attachments::default());
        let keeper = Self {
            attacher,
            tracker: Tracker::new(selection),
            links: LinkWatch::open()?,
            states: BTreeMap::new(),
            sockets: SocketState::default(),
            complete: false,
            report,
        };
        Ok((keeper, reported))
    }

    /// Runs until it is dropped.
    pub async fn run(mut self) {
        let mut check = interval_at(tokio::time::Instant::now() + CHECK_INTERVAL, CHECK_INTERVAL);
        check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.attach_sockets();
        loop {
            tokio::select! {
                event = self.links.next() => match event {
                    Ok(event) => self.handle(event).await,
                    Err(error) => self.reopen(&error).await,
                },
                _ = check.tick() => self.check().await,
            }
            self.publish();
        }
    }

    async fn handle(&mut self, event: LinkEvent) {
        match event {
            LinkEvent::Listed(links) => {
                for change in self.tracker.listed(links) {
                    self.carry_out(change).await;
                }
                let chosen = self.tracker.chosen().map(|chosen| chosen.ifindex).collect();
                if let Err(error) = self.attacher.sweep(&chosen).await {
                    warn!("cannot remove what an earlier run left on interfaces: {error}");
                }
                if !self.complete && self.states.is_empty() {
                    warn!("no interface is chosen now, so no traffic is served; see --interface");
                }
                self.complete = true;
            }
            LinkEvent::Seen(link) => {
                if let Some(change) = self.tracker.seen(link) {
                    self.carry_out(change).await;
                }
            }
            LinkEvent::Gone(ifindex) => {
                if let Some(change) = self.tracker.gone(ifindex) {
                    self.carry_out(change).await;
                }
            }
        }
    }

    async fn carry_out(&mut self, change: Change) {
        match change {
            Change::Attach(chosen) => self.attach(&chosen).await,
            Change::Release(ifindex) => {
                if let Some(state) = self.states.remove(&ifindex) {
                    info!(interface = state.name, ifindex, "interface left");
                }
                if let Err(error) = self.attacher.release(ifindex).await {
                    warn!(ifindex, "cannot take the programs off an interface: {error}");
                }
            }
        }
    }

    async fn attach(&mut self, chosen: &Chosen) {
        let Chosen { ifindex, name, role, uplink } = chosen.clone();
        let (hooks, error) = self.attacher.attach(ifindex, &name).await;
        if error.as_ref().is_some_and(super::AttachError::is_gone) {
            // It went before we came, and the kernel says so next.
            self.states.remove(&ifindex);
            return;
        }
        let error = error.map(|error| error.to_string());
        let state = InterfaceState { name, ifindex, role, uplink, hooks, mode: self.attacher.mode(), error };
        if self.states.get(&ifindex) != Some(&state) {
            match &state.error {
                Some(error) => warn!("{error}"),
                None => info!(interface = state.name, ifindex, ?role, "programs attached"),
            }
        }
        self.states.insert(ifindex, state);
    }

    fn attach_sockets(&mut self) {
        let state = self.attacher.attach_sockets();
        if state != self.sockets {
            match (&state.error, &state.cgroup) {
                (Some(error), _) => warn!("clients on the node itself are not served: {error}"),
                (None, Some(cgroup)) => {
                    info!(cgroup = %cgroup.display(), served = state.served.name(), "programs attached to sockets' calls");
                }
                (None, None) => {}
            }
        }
        self.sockets = state;
    }

    async fn check(&mut self) {
        self.attach_sockets();
        let chosen: Vec<Chosen> = self.tracker.chosen().cloned().collect();
        for chosen in chosen {
            self.attach(&chosen).await;
        }
    }

    /// The new socket begins with a list, which makes good what was missed.
    async fn reopen(&mut self, error: &io::Error) {
        warn!("the kernel's news of interfaces broke off and is asked for again: {error}");
        sleep(REOPEN_DELAY).await;
        match LinkWatch::open() {
            Ok(links) => self.links = links,
            Err(error) => warn!("cannot listen for interfaces: {error}"),
        }
    }

    fn publish(&self) {
        let now = Attachments {
            complete: self.complete,
            interfaces: self.states.values().cloned().collect(),
            sockets: self.sockets.clone(),
        };
        self.report.send_if_modified(|before| {
            let changed = *before != now;
            *before = now;
            changed
        });
    }
}
