//! Everything that is done to this repository.
fn main() {}
