//! EndpointSlices, or Endpoints in their place: one feed, whichever of them is read.
//!
//! Going over from one to the other begins a list on the same feed, so nothing is lost in between and nothing of the
//! other kind is left when it is complete.

use std::{convert::Infallible, time::Duration};

use clap::ValueEnum;
use kube::{Api, Client, api::ListParams};
use tokio::{sync::mpsc::error::SendError, time::sleep};

use super::{
    client::Answers,
    follow::{Manner, NotServed, follow},
    speaker::Speaker,
};
use crate::source::{SourceEvent, convert::api};

/// What says which addresses are behind a Service (`--endpoints-api`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum EndpointsApi {
    /// EndpointSlices; Endpoints for as long as the API server does not serve them
    #[default]
    Slices,
    /// Endpoints, of which one holds 1,000 addresses at most
    Endpoints,
}

impl EndpointsApi {
    /// The resource, in full.
    pub(super) const fn resource(self) -> &'static str {
        match self {
            Self::Slices => "endpointslices.discovery.k8s.io",
            Self::Endpoints => "endpoints",
        }
    }
}

/// Says which endpoints there are, and every change.
///
/// # Errors
/// Where nobody listens any more; nothing else ends it.
pub(super) async fn follow_endpoints(
    read: EndpointsApi,
    client: Client,
    answers: Answers,
    manner: Manner<'_>,
    mut speaker: Speaker<'_>,
) -> Result<Infallible, SendError<SourceEvent>> {
    let slices = Api::<api::EndpointSlice>::all(client.clone());
    let endpoints = Api::<api::Endpoints>::all(client);
    let contact = speaker.contact().clone();
    let own_name = contact.name();
    let address = manner.address;
    let of_slices = Manner { ends_if_not_served: true, ..manner.clone() };
    loop {
        if read == EndpointsApi::Slices {
            let NotServed = follow(slices.clone(), answers.clone(), &of_slices, &mut speaker).await?;
            tracing::warn!("endpointslices are not served at {address}: endpoints are read in their place");
            contact.rename(format!("endpoints at {address} (endpointslices are not served)"));
        }
        tokio::select! {
            ended = follow(endpoints.clone(), answers.clone(), &manner, &mut speaker) => {
                let NotServed = ended?;
            }
            () = served(&slices, &answers, manner.timing.slices_check), if read == EndpointsApi::Slices => {
                tracing::info!("endpointslices are now served at {address} and are read again");
                contact.rename(own_name.clone());
            }
        }
    }
}

/// Waits until slices can be listed. Asks for one of them, now and then: that costs next to nothing, and says more than
/// the list of what is served, which knows nothing of permissions.
async fn served(slices: &Api<api::EndpointSlice>, answers: &Answers, every: Duration) {
    let one = ListParams::default().limit(1);
    loop {
        sleep(every.max(answers.retry_after())).await;
        if slices.list(&one).await.is_ok() {
            return;
        }
    }
}
