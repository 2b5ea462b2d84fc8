//! `cargo xtask bench`: measures, prints what it found, and tells by its exit code whether targets hold.

fn main() -> std::process::ExitCode {
    lb_tests::bench::main()
}
