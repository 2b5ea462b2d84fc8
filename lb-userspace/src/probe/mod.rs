//! The kubelet's prober, for pods that no kubelet looks after: those of manifests.
//!
//! Here is what decides (whom a probe asks, when a worker runs, what its results amount to). What
//! holds the workers together and what asks over the network are not here yet, and no verb uses it.

pub mod annotations;
pub mod check;
pub mod scope;
#[cfg(test)]
mod tests;
pub mod worker;
