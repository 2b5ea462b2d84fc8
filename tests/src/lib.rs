//! What the tests are made of.

pub mod apiserver;
