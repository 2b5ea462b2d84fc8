//! The objects as the sources say them, and the desired state that follows from them.
//!
//! Every reader of the desired state has it from here: the reconciler as it changes, `readylb render` at once.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use lb_common::ServiceKey;

use crate::{
    desired::{Desired, Identity, NodeView, compile},
    model::{ObjectKey, Store},
    render::{Document, EndpointView, endpoints},
    source::{Feed, SourceEvent},
};

/// Objects and desired state.
#[derive(Debug)]
pub struct State {
    identity: Identity,
    node: NodeView,
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
        Self { identity, node: NodeView::default(), store, desired: Desired::default() }
    }

    /// Takes in what a source says. The desired state follows with [`State::refresh`].
    pub fn handle(&mut self, event: SourceEvent) {
        self.store.handle(event);
    }

    /// Computes anew what the events since the last call have touched, and tells what that has changed. A change of an
    /// object costs what its Service costs; one of this node, what all Services do.
    pub fn refresh(&mut self) -> Vec<Change> {
        let mut touched = self.store.take_dirty();
        if self.store.take_nodes_dirty() {
            let node = self.store.node(&self.identity.node);
            let node = NodeView::new(&self.identity.nodeport_addresses, node, self.store.host());
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
