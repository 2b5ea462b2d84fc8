//! What the tests are made of.
