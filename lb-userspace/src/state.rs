//! The objects as the sources say them, and the desired state that follows from them.
//!
//! Every reader of the desired state has it from here: the reconciler as it changes, `readylb render` at once.

#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, net::IpAddr};

use lb_common::ServiceKey;

use crate::{
    desired::{Desired, HealthChecks, Identity, NodeSources, NodeView, compile},
    model::{ObjectKey, Store},
    render::{Document, EndpointView, endpoints},
    source::{Feed, SourceEvent},
};

/// Objects and desired state.
#[derive(Debug)]
pub struct State {
    identity: Identity,
    /// What an earlier agent has known this node by.
    remembered: Vec<IpAddr>,
    node: NodeView,
    /// What was heard when `node` was put together, see [`State::heard`].
    heard: (bool, bool),
    store: Store,
    desired: Desired,
}

/// A Service whose desired state has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The Service.
    pub service: ObjectKey,
    /// The frontends that this may change, also those of other Services.
    pub frontends: BTreeSet<ServiceKey>,
}

impl State {
    /// Nothing yet, from this number of feeds. What the optional ones say is dispensable, see [`Store::optional`].
    pub fn new(identity: Identity, feeds: usize, optional: &[Feed]) -> Self {
        let store = optional.iter().fold(Store::new(feeds), |store, feed| store.optional(*feed));
        Self {
            identity,
            remembered: Vec::new(),
            node: NodeView::default(),
            heard: (false, false),
            store,
            desired: Desired::default(),
        }
    }

    /// The same, with what an earlier agent has known this node by, see [`NodeSources::remembered`].
    #[must_use]
    pub fn remembering(self, remembered: Vec<IpAddr>) -> Self {
        Self { remembered, ..self }
    }

    /// Takes in what a source says. The desired state follows with [`State::refresh`].
    pub fn handle(&mut self, event: SourceEvent) {
        self.store.handle(event);
    }

    /// Computes anew what the events since the last call have touched, and tells what that has changed. A change of an
    /// object costs what its Service costs; one of this node, what all Services do.
    pub fn refresh(&mut self) -> Vec<Change> {
        let mut touched = self.store.take_dirty();
        let heard = self.heard();
        if self.store.take_nodes_dirty() || self.heard != heard {
            self.heard = heard;
            let (is_complete, is_heard) = heard;
            let sources = NodeSources {
                node: self.store.node(&self.identity.node),
                host: self.store.host(),
                remembered: if is_heard { &[] } else { &self.remembered },
                is_awaited: !is_complete,
            };
            let node = NodeView::new(&self.identity.nodeport_addresses, sources);
            if self.node != node {
                self.node = node;
                touched.extend(self.store.services().map(|service| service.key.clone()));
            }
        }
        let mut changes = Vec::new();
        for service in touched {
            let of_service = |of| compile(of, &self.store.slices_of(&service), &self.identity, &self.node);
            let new = self.store.service(&service).map(of_service);
            if let Some(frontends) = self.desired.update(&service, new) {
                changes.push(Change { service, frontends });
            }
        }
        changes
    }

    /// Whether the store is complete, and whether every feed has been heard.
    fn heard(&self) -> (bool, bool) {
        (self.store.is_complete(), self.store.is_heard())
    }

    /// What is known of this node, as of the last [`State::refresh`].
    pub const fn node(&self) -> &NodeView {
        &self.node
    }

    /// What is asked at health-check node ports, if that may have changed since the last call.
    pub fn take_health_checks(&mut self) -> Option<HealthChecks> {
        self.desired.take_health_checks()
    }

    /// Who we are.
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The objects.
    pub const fn store(&self) -> &Store {
        &self.store
    }

    /// The desired state, as of the last [`State::refresh`].
    pub const fn desired(&self) -> &Desired {
        &self.desired
    }

    /// Every endpoint, chosen or not.
    pub fn endpoints(&self) -> Vec<EndpointView> {
        endpoints(&self.identity, &self.node, &self.desired, &self.store)
    }

    /// The desired state as users see it.
    pub fn render(&self) -> Document {
        Document::new(&self.identity.node, &self.desired, &self.store)
    }
}
