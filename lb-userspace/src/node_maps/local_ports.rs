//! Whether the node may give its own connections the ports that source NAT takes.

use std::{fs, io, ops::RangeInclusive};

use lb_common::source_nat;

/// The ports of source NAT.
const OF_SOURCE_NAT: RangeInclusive<u16> = source_nat::FIRST_PORT..=u16::MAX;

/// The kernel's choice for connections without a port of their own. (ip(7); one for both families)
const LOCAL_PORTS: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// What of it the kernel does not choose.
const RESERVED: &str = "/proc/sys/net/ipv4/ip_local_reserved_ports";

/// What is wrong, in one sentence, if something is. In the network namespace of this thread.
///
/// # Errors
/// What the kernel says.
pub fn overlap() -> io::Result<Option<String>> {
    Ok(sentence(&fs::read_to_string(LOCAL_PORTS)?, &fs::read_to_string(RESERVED)?))
}

fn sentence(local: &str, reserved: &str) -> Option<String> {
    let mut ends = local.split_whitespace().map(str::parse::<u16>);
    let (Some(Ok(first)), Some(Ok(last))) = (ends.next(), ends.next()) else { return None };
    let reserved: Vec<_> = reserved.trim().split(',').filter_map(range).collect();
    let is_chosen =
        |port: &u16| (first..=last).contains(port) && !reserved.iter().any(|it| it.contains(port));
    let (start, end) = (OF_SOURCE_NAT.start(), OF_SOURCE_NAT.end());
    OF_SOURCE_NAT.into_iter().any(|port| is_chosen(&port)).then(|| {
        format!(
            "net.ipv4.ip_local_port_range is {first} {last}, and ports {start} to {end} are those of source NAT: end it \
             at {}, or add {start}-{end} to net.ipv4.ip_local_reserved_ports",
            start - 1
        )
    })
}

/// A port, or a range of them.
fn range(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some(first.parse().ok()?..=last.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_that_are_both_the_node_s_and_those_of_source_nat_are_told() {
        let rows = [
            ("32768\t60999\n", "\n", false),
            ("32768\t61000\n", "\n", true),
            ("1024\t65535\n", "\n", true),
            ("1024\t65535\n", "61000-65535\n", false),
            ("1024\t65535\n", "8080,61000-65000,65001-65535\n", false),
            ("1024\t65535\n", "61001-65535\n", true),
            ("nonsense", "", false),
        ];
        for (local, reserved, want) in rows {
            assert_eq!(sentence(local, reserved).is_some(), want, "{local:?}, {reserved:?}");
        }
        let want = "net.ipv4.ip_local_port_range is 1024 65535, and ports 61000 to 65535 are those of source NAT: end it \
                    at 60999, or add 61000-65535 to net.ipv4.ip_local_reserved_ports";
        assert_eq!(sentence("1024 65535", "").as_deref(), Some(want));
        overlap().unwrap();
    }
}
