//! The eBPF programs. This file is the list of entry points; each is one expression whose value is the verdict.
//!
//! ```text
//!   tc ingress   parse ─► service? ─► flow? ─► keep its backend ──────────────────────► destination := backend
//!                  │        │           └────► choose one, record both directions ─┘
//!                  │        │                  └─ not allowed, or nobody to choose ─► drop, or answer: refused
//!                  │        └─ no ─► ClusterIP? ─► answer: refused, or the reply to an echo request
//!                  │                    └─ no ─► nobody's: pass untouched
//!                  └─ to a port of this node that stands for a client? ───────────────► destination := client
//!
//!   tc egress    parse ─► on its way to a backend, and the replies are to come here? ─► source := node, port
//!                  └────► reply of a flow? ───────────────────────────────────────────► source := VIP
//!                           └─ no ─► from this node itself, to a VIP? ─► answer, as above
//!                                       └─ no ─► pass untouched
//!
//!   both         parse ─► a later fragment ─► address := as the first one has it
//!                    └──► an ICMP error ────► the packet that it quotes := as its sender knows it
//!
//!   connect, sendmsg      service? ─► choose one (a datagram: keep it) ─► remember the VIP ─► peer := backend
//!                           └─ no ─► pass untouched
//!   getpeername, recvmsg  remembered? ─► peer := VIP
//! ```
//!
//! Translated packets end with "next program" as well, so that the programs of a CNI still see them; only drops and answers
//! end the chain, and with `--host-routing bpf` what goes past the stack.
//!
//! ```text
//!   tc  sock ─► begin ─► affinity  fragment  icmp ─► lookup  flow  nat  answer  route ─► packet  fib  node  sctp ─► ip
//!      ─► headers  maps  settings  count ─► lb-common, where every decision is made
//! ```
#![no_std]
#![no_main]
// For the one instruction in `count.rs`; no other compiler than the pinned one compiles this crate.
#![feature(asm_experimental_arch)]
#![expect(
    clippy::needless_borrows_for_generic_args,
    reason = "a key passed by value is copied to the stack first"
)]

mod affinity;
mod answer;
mod begin;
mod count;
mod fib;
mod flow;
mod fragment;
mod headers;
mod icmp;
mod ip;
mod lookup;
mod maps;
mod mark;
mod nat;
mod node;
mod packet;
mod route;
mod sctp;
mod settings;
mod sock;
mod tc;

use aya_ebpf::{
    macros::{cgroup_sock_addr, classifier},
    programs::{SockAddrContext, TcContext},
};

use sock::Family::{V4, V6};

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

/// connect(2) of an IPv4 socket, TCP or UDP.
#[cgroup_sock_addr(connect4)]
fn connect4(ctx: SockAddrContext) -> i32 {
    sock::connect(&ctx, V4)
}

/// connect(2) of an IPv6 socket, also to an IPv4-mapped address.
#[cgroup_sock_addr(connect6)]
fn connect6(ctx: SockAddrContext) -> i32 {
    sock::connect(&ctx, V6)
}

/// A datagram that names its IPv4 destination, also as an IPv4-mapped address of an IPv6 socket.
#[cgroup_sock_addr(sendmsg4)]
fn sendmsg4(ctx: SockAddrContext) -> i32 {
    sock::sendmsg(&ctx, V4)
}

/// A datagram that names its IPv6 destination.
#[cgroup_sock_addr(sendmsg6)]
fn sendmsg6(ctx: SockAddrContext) -> i32 {
    sock::sendmsg(&ctx, V6)
}

/// Whom an IPv4 socket has a datagram from.
#[cgroup_sock_addr(recvmsg4)]
fn recvmsg4(ctx: SockAddrContext) -> i32 {
    sock::name_peer(&ctx, V4)
}

/// Whom an IPv6 socket has a datagram from, also where that is an IPv4-mapped address.
#[cgroup_sock_addr(recvmsg6)]
fn recvmsg6(ctx: SockAddrContext) -> i32 {
    sock::name_peer(&ctx, V6)
}

/// Whom an IPv4 socket is connected to.
#[cgroup_sock_addr(getpeername4)]
fn getpeername4(ctx: SockAddrContext) -> i32 {
    sock::name_peer(&ctx, V4)
}

/// Whom an IPv6 socket is connected to, also where that is an IPv4-mapped address.
#[cgroup_sock_addr(getpeername6)]
fn getpeername6(ctx: SockAddrContext) -> i32 {
    sock::name_peer(&ctx, V6)
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
