//! Which of a Service's slices are looked at at all.

use lb_common::Verdict;

use super::{EndpointSet, Skipped};
use crate::model::{AddressType, EndpointSlice, Kind};

/// The slices that count. Where a Service has EndpointSlices, its Endpoints object says the same or less, and may be
/// behind: an address that only it calls ready must not be used.
pub(super) fn that_count<'a>(slices: &[&'a EndpointSlice]) -> Vec<&'a EndpointSlice> {
    slices.iter().copied().filter(|slice| !is_superseded(slice, slices)).collect()
}

/// Why none of these sets of a Service looks at one of its slices, if so. A Service without any set has a reason of its
/// own.
pub fn left_out(slice: &EndpointSlice, slices: &[&EndpointSlice], sets: &[EndpointSet]) -> Option<Skipped> {
    let skipped =
        |reason, what: String| Some(Skipped { reason, message: format!("{} {what}", slice.reference()) });
    if is_superseded(slice, slices) {
        let reason = Verdict::SlicesFirst;
        return skipped(reason, format!("is not read: {}", reason.describe()));
    }
    match &slice.address_type {
        AddressType::Fqdn => {
            skipped(Verdict::FqdnSlice, "holds host names, which are not resolved".to_owned())
        }
        AddressType::Unknown(text) => {
            skipped(Verdict::UnknownAddressType, format!("has the unknown address type {text:?}"))
        }
        address_type @ (AddressType::Ipv4 | AddressType::Ipv6) => {
            let is_looked_at = sets.iter().any(|set| address_type.family() == Some(set.family));
            if sets.is_empty() || is_looked_at {
                return None;
            }
            let what = format!("holds {address_type} addresses, and the Service has none of that family");
            skipped(Verdict::FamilyNotServed, what)
        }
    }
}

fn is_superseded(slice: &EndpointSlice, slices: &[&EndpointSlice]) -> bool {
    slice.kind == Kind::Endpoints && slices.iter().any(|other| other.kind == Kind::EndpointSlice)
}
