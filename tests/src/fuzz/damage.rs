//! What is done to a whole frame: cut short, bits flipped, fields that say what is not so.

use fastrand::Rng;

/// How far into a frame headers usually reach.
const HEADERS: usize = 80;

/// Damages a frame.
pub(super) fn damage(rng: &mut Rng, frame: &mut Vec<u8>) {
    let ip = ip_offset(frame);
    match rng.u32(..10) {
        0..3 => frame.truncate(rng.usize(14..=frame.len())),
        3..5 => {
            for _ in 0..rng.usize(1..=3) {
                let at = rng.usize(..frame.len().min(HEADERS));
                frame[at] ^= 1 << rng.u32(..8);
            }
        }
        5 => {
            let at = rng.usize(..frame.len().min(HEADERS));
            frame[at] = rng.u8(..);
        }
        // Version and IPv4 header length.
        6 => set(frame, ip, &[rng.u8(..)]),
        7 => lengths(rng, frame, ip),
        8 => {
            let at = ip + if rng.bool() { 20 } else { 40 } + rng.usize(..20);
            set(frame, at, &[*pick(rng, &[0, 1, 0x40, 0x50, 0xf0, 0xff])]);
        }
        _ => {
            // IPv4: flags and offset, protocol; IPv6: next header.
            let (at, with) =
                *pick(rng, &[(6, 0x20), (6, 0x00), (7, 0x01), (9, 51), (9, 132), (6, 44), (6, 0), (6, 59)]);
            set(frame, ip + at, &[with]);
        }
    }
}

/// Lengths of IPv4, IPv6 and UDP, and where TCP has its header length.
fn lengths(rng: &mut Rng, frame: &mut [u8], ip: usize) {
    let at = *pick(rng, &[ip + 2, ip + 2, ip + 4, ip + 4, ip + 24, ip + 44, ip + 32, ip + 52]);
    let real = frame.len().saturating_sub(ip);
    let near = u16::try_from(real.saturating_sub(rng.usize(..60))).unwrap_or_default();
    let len = *pick(rng, &[0, 1, near, near.wrapping_add(30), u16::MAX]);
    set(frame, at, &len.to_be_bytes());
}

/// Where the IP header begins, behind any number of tags.
fn ip_offset(frame: &[u8]) -> usize {
    let mut at = 12;
    while matches!(frame.get(at..at + 2), Some([0x81, 0x00] | [0x88, 0xa8])) {
        at += 4;
    }
    at + 2
}

fn set(frame: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = frame.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

fn pick<'a, T>(rng: &mut Rng, of: &'a [T]) -> &'a T {
    &of[rng.usize(..of.len())]
}

/// The kernel itself refuses to run a frame without a whole Ethernet header, and one whose type is IP without a whole IP
/// header; behind a tag it takes any length.
pub(super) fn make_runnable(frame: &mut Vec<u8>) {
    let whole = match frame.get(12..14) {
        Some([0x08, 0x00]) => 34,
        Some([0x86, 0xdd]) => 54,
        _ => 14,
    };
    if frame.len() < whole {
        frame.resize(frame.len().max(14), 0);
        frame.splice(12..12, [0x81, 0x00, 0x00, 0x64]);
    }
}
