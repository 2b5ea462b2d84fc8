//! The eBPF programs. This file is the list of entry points; each is one expression whose value is the verdict.
//!
//! ```text
//!   tc ingress   parse ─► service? ─► flow? ─► keep its backend ──────────────────────► destination := backend
//!                           │           └────► choose one, record both directions ─┘
//!                           │                  └─ nobody to choose ─► answer: refused
//!                           └─ no ─► ClusterIP? ─► answer: refused, or the reply to an echo request
//!                                       └─ no ─► nobody's: pass untouched
//!
//!   tc egress    parse ─► reply of a flow? ─► source := VIP
//!                           └─ no ─► from this node itself, to a VIP? ─► answer, as above
//!                                       └─ no ─► pass untouched
//! ```
//!
//! Translated packets end with "next program" as well, so that the programs of a CNI still see them; only drops and answers
//! end the chain.
//!
//! ```text
//!   tc ─► lookup  flow  nat  answer ─► packet  fib ─► headers  maps  settings  count ─► lb-common, where every decision is made
//! ```
#![no_std]
#![no_main]
#![expect(
    clippy::needless_borrows_for_generic_args,
    reason = "a key passed by value is copied to the stack first"
)]

mod answer;
mod count;
mod fib;
mod flow;
mod headers;
mod lookup;
mod maps;
mod mark;
mod nat;
mod packet;
mod settings;
mod tc;

use aya_ebpf::{macros::classifier, programs::TcContext};

/// Packets that arrive through an interface: from a client on their way to a backend.
#[classifier]
fn tc_ingress(ctx: TcContext) -> i32 {
    tc::ingress(&ctx)
}

/// Packets that leave through an interface: replies on their way to a client.
#[classifier]
fn tc_egress(ctx: TcContext) -> i32 {
    tc::egress(&ctx)
}

/// The kernel takes it for compatible with the GPL, as some helpers demand.
#[unsafe(no_mangle)]
#[unsafe(link_section = "license")]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // No panic is reachable: the verifier refuses an endless loop.
    loop {}
}
