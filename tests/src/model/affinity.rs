//! Session affinity: which backend a client had last, of each service port.

use std::{collections::HashMap, net::IpAddr};

use super::services::{Backend, Frontend};

/// What is known of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The id of its backend.
    pub backend: u32,
    /// When it was last used, nanoseconds of `CLOCK_MONOTONIC`.
    pub last: u64,
}

/// Every client of a service port that has a backend.
#[derive(Clone, Debug, Default)]
pub struct Affinity {
    /// By address and service port.
    pub clients: HashMap<(IpAddr, u32), Held>,
    /// Those whose time the last packet has renewed.
    pub touched: Vec<(IpAddr, u32)>,
}

impl Affinity {
    /// The place in a frontend's set of the backend that a client goes back to.
    pub(super) fn slot(&self, client: IpAddr, frontend: &Frontend, now: u64) -> Option<usize> {
        let held = self.clients.get(&(client, frontend.service))?;
        let is_fresh = now.saturating_sub(held.last) <= frontend.affinity?;
        let is_it = |backend: &Backend| backend.id == held.backend;
        frontend.backends.iter().position(is_it).filter(|_| is_fresh)
    }

    pub(super) fn remember(&mut self, client: IpAddr, frontend: &Frontend, backend: u32, now: u64) {
        if frontend.affinity.is_some() {
            self.touched.push((client, frontend.service));
            self.clients.insert((client, frontend.service), Held { backend, last: now });
        }
    }
}
