//! The traffic test in a guest of `cargo xtask vm`: prints one line of results.

fn main() {
    lb_tests::vm_guest::main();
}
