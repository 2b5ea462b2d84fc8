//! One resource for as long as the agent runs.

use std::{fmt::Debug, pin::pin, time::Duration};

use backon::ExponentialBuilder;
use futures::StreamExt;
use kube::{
    Api, Resource,
    runtime::{
        utils::ResetTimerBackoff,
        watcher::{self, ExponentialBackoff, watcher},
    },
};
use serde::de::DeserializeOwned;
use tokio::{
    sync::mpsc::error::SendError,
    time::{sleep, timeout},
};

use super::{
    Timing,
    client::Answers,
    failure::{Failure, Remedy},
    speaker::Speaker,
};
use crate::source::{SourceEvent, convert::FromApi};

/// Objects in one page of a list.
const PAGE_SIZE: u32 = 500;

/// How a resource is followed.
#[derive(Clone, Debug)]
pub(super) struct Manner<'a> {
    /// Of the server, as errors name it.
    pub(super) address: &'a str,
    pub(super) timing: &'a Timing,
    /// The pauses after failures.
    pub(super) backoff: ExponentialBuilder,
    /// The field selector; none for all objects.
    pub(super) fields: Option<String>,
    /// Whether there is something to read in its place where the server does not have the resource at all.
    pub(super) ends_if_not_served: bool,
}

/// The server does not have the resource.
#[derive(Debug)]
pub(super) struct NotServed;

/// Says what there is of one resource, and every change. Ends where the server does not have it, if that was asked for.
///
/// # Errors
/// Where nobody listens any more.
pub(super) async fn follow<K>(
    api: Api<K>,
    mut answers: Answers,
    manner: &Manner<'_>,
    speaker: &mut Speaker<'_>,
) -> Result<NotServed, SendError<SourceEvent>>
where
    K: FromApi + Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let timing = manner.timing;
    let pauses = |backoff| ResetTimerBackoff::new(ExponentialBackoff::from(backoff), timing.backoff_reset);
    let mut after_failure = pauses(manner.backoff);
    let mut before_list = pauses(timing.list_backoff);
    let mut config = watcher::Config::default().page_size(PAGE_SIZE).timeout(timing.watch_seconds);
    config.field_selector.clone_from(&manner.fields);
    loop {
        let mut stream = pin!(watcher(api.clone(), config.clone()));
        let mut listing = true;
        let mut failed_at = answers.count();
        loop {
            let limit = if listing { timing.list_timeout } else { Duration::MAX };
            let next = tokio::select! {
                biased;
                // A watch that is open again says nothing until something changes.
                () = answers.well_since(failed_at, timing.shortest_watch), if speaker.is_failing() && !listing => {
                    speaker.recovered().await?;
                    continue;
                }
                next = timeout(limit, stream.next()) => next,
            };
            let failure = match next {
                Ok(Some(Ok(event))) => {
                    listing = match event {
                        watcher::Event::Init | watcher::Event::InitApply(_) => true,
                        watcher::Event::InitDone | watcher::Event::Apply(_) | watcher::Event::Delete(_) => {
                            false
                        }
                    };
                    speaker.pass_on(event).await?;
                    continue;
                }
                Ok(Some(Err(error))) => Failure::Watcher(error),
                Ok(None) => Failure::Ended,
                Err(_) => Failure::NoAnswer(limit),
            };
            if manner.ends_if_not_served && failure.says_not_served() {
                return Ok(NotServed);
            }
            let remedy = failure.remedy();
            let backoff = if remedy == Remedy::List { &mut before_list } else { &mut after_failure };
            if remedy != Remedy::List {
                failed_at = answers.count();
                speaker.failing(failure.sentence(K::URL_PATH_SEGMENT, manner.address)).await?;
            }
            // Pauses that have come to their end start over after this.
            let pause = backoff.next().unwrap_or(timing.backoff_reset);
            sleep(pause.max(answers.retry_after())).await;
            if remedy != Remedy::Retry {
                break;
            }
        }
    }
}
