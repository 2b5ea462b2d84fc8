//! The readylb command.
fn main() {}
