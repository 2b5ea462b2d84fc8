//! The command `readylb` as the tests start it: the same `main`, built with them so that it is never older than they are.

fn main() -> std::process::ExitCode {
    lb_userspace::cli::main()
}
