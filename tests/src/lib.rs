//! What the tests are made of.

pub mod apiserver;
pub mod bpf_root;
pub mod datapath;
pub mod foreign;
pub mod netns;
pub mod traffic;
