//! `readylb get endpoints`: every endpoint of every Service, chosen or not, with the reason.

use super::super::{Failure, Location, Output, block_on, json, print};
use crate::{
    admin::client,
    render::{EndpointView, table::endpoints_table},
};

pub(super) fn run(location: &Location, output: Output) -> Result<(), Failure> {
    let endpoints = block_on(client::get::<Vec<EndpointView>>(&location.admin_socket, "/v1/endpoints"))??;
    print(&match output {
        Output::Json => json(&endpoints)?,
        Output::Table if endpoints.is_empty() => "no endpoints\n".to_owned(),
        Output::Table => endpoints_table(&endpoints),
    })?;
    Ok(())
}
