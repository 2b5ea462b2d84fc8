//! `readylb render`: the desired state of some manifests.

use std::{
    io,
    path::{Path, PathBuf},
};

use anyhow::anyhow;
use clap::Args;

use super::{Failure, IdentityArgs, Output, json, print};
use crate::{
    source::{Event, Feed, SourceEvent, manifest},
    state::State,
};

/// Print the desired state for some manifests; needs no root and no kernel
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  kubectl get services,endpointslices -A -o yaml | readylb render --manifests -"
)]
pub(super) struct RenderArgs {
    /// File or folder to read, `-` for standard input (repeatable)
    #[arg(long, value_name = "PATH", required = true)]
    manifests: Vec<PathBuf>,
    #[command(flatten)]
    identity: IdentityArgs,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

pub(super) fn run(args: RenderArgs) -> Result<(), Failure> {
    let identity = args.identity.resolve().map_err(Failure::BadInput)?;
    let mut state = State::new(identity, args.manifests.len(), &[]);
    let mut wrong = Vec::new();
    for (number, path) in args.manifests.iter().enumerate() {
        match read(path) {
            Ok(contents) => fill(&mut state, Feed(number), contents),
            Err(errors) => wrong.extend(errors.0),
        }
    }
    if let Some((last, others)) = wrong.split_last() {
        // All that is wrong, so that it can be mended at once; the last one is the error of the verb.
        others.iter().for_each(|error| eprintln!("readylb: {error}"));
        return Err(Failure::BadInput(anyhow!("{last}")));
    }
    state.refresh();
    let document = state.render();
    print(&match args.output {
        Output::Json => json(&document)?,
        Output::Table => document.to_tables(),
    })?;
    Ok(())
}

fn read(path: &Path) -> Result<manifest::Contents, manifest::ManifestErrors> {
    if path == Path::new("-") {
        manifest::read_from(io::stdin().lock(), "standard input")
    } else {
        manifest::read(path)
    }
}

fn fill(state: &mut State, feed: Feed, contents: manifest::Contents) {
    let applied = contents.objects.into_values().map(Event::Apply);
    let said = [Event::Warnings(contents.warnings), Event::ListComplete];
    for event in [Event::ListStarted].into_iter().chain(applied).chain(said) {
        state.handle(SourceEvent { feed, event });
    }
}
