//! What the sender of a packet gets back in its place: a refusal, or the reply to an echo request. What is decided about
//! it is in lb-common's module `refuse`.

mod echo;
mod frame;
mod message;

pub(crate) use message::Message;

use aya_ebpf::programs::TcContext;
use lb_common::{Verdict, refuse::is_one_host, service::proto, verdict::About};

use crate::{
    count::End,
    fib,
    maps::{ERRORS_DUE, PACKET},
    mark::{self, Mark},
    settings,
};

/// Makes the answer to a packet, if that is how it is to end.
#[inline(always)]
pub(crate) fn make(ctx: &TcContext, end: End) -> End {
    match end {
        Some(verdict) if verdict.about() == About::PacketAnswered => answer(ctx, verdict),
        end => end,
    }
}

/// Puts the answer in the place of the packet that was parsed last. The result is the reason to count, the given one or
/// why there is no answer; `None`, and the packet passes, where it is on its way to another host.
///
/// A function of its own, so that the verifier need not follow it from every place where a packet can be refused.
#[inline(never)]
fn answer(ctx: &TcContext, verdict: Verdict) -> End {
    let Some(packet) = PACKET.get_ptr(0) else { return Some(Verdict::RewriteFailed) };
    // SAFETY: the element is this CPU's; a program runs to its end before the next begins, and nothing writes to it after
    // parsing.
    let packet = unsafe { &*packet };
    if !frame::is_to_one_host(ctx) || !is_one_host(packet.key.tuple.source) {
        return Some(Verdict::Unanswerable);
    }
    if frame::is_to_another_host(ctx) && fib::leads_back(ctx, packet) {
        return None;
    }
    let made = match (verdict, packet.key.proto) {
        (Verdict::EchoAnswered, _) => echo::reply(ctx, packet),
        (_, proto::TCP) => {
            let Some(reset) = message::reset_for(ctx, packet) else { return Some(Verdict::Unanswerable) };
            message::reset(ctx, packet, &reset)
        }
        _ if !may_send_error() => return Some(Verdict::RefusalLimited),
        _ => message::unreachable(ctx, packet),
    };
    if made.is_err() {
        return Some(Verdict::RewriteFailed);
    }
    // The egress has nothing to do with it.
    mark::set(ctx, Mark::Done);
    Some(verdict)
}

/// Takes one ICMP error from what this CPU may send.
#[inline(always)]
fn may_send_error() -> bool {
    let Some(due) = ERRORS_DUE.get_ptr_mut(0) else { return false };
    // SAFETY: the element is this CPU's, and nothing else runs on it in between.
    unsafe {
        let next = lb_common::refuse::spend(*due, settings::now());
        *due = next.unwrap_or(*due);
        next.is_some()
    }
}
