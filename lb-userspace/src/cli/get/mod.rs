//! `readylb get`: lists what the running agent serves.

mod endpoints;
mod services;

use clap::{Args, ValueEnum};

use super::{Failure, Location, Output};

/// List what the running agent serves
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  readylb get endpoints")]
pub(super) struct GetArgs {
    /// What to list
    #[arg(value_enum)]
    what: What,
    #[command(flatten)]
    location: Location,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// Frontends with their backends, as the maps hold them, and what is withheld
    Services,
    /// Every endpoint of every Service, chosen or not, with the reason
    Endpoints,
}

pub(super) fn run(args: &GetArgs) -> Result<(), Failure> {
    match args.what {
        What::Services => services::run(&args.location, args.output),
        What::Endpoints => endpoints::run(&args.location, args.output),
    }
}
