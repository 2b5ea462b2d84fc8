//! The command `readylb`.

fn main() -> std::process::ExitCode {
    lb_userspace::cli::main()
}
