//! qdiscs and filters over netlink, by interface index. (tc-bpf(8); `linux/pkt_sched.h`, `linux/pkt_cls.h`.)

use std::{
    collections::BTreeSet,
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

use futures::{Stream, StreamExt, TryStreamExt};
use rtnetlink::{
    packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload},
    packet_route::{
        RouteNetlinkMessage,
        tc::{TcAttribute, TcBpfFlags, TcFilterBpf, TcFilterBpfOption, TcHandle, TcMessage, TcOption},
    },
};

use super::Hook;
use crate::netlink::{Questions, into_io};

/// The qdisc that holds filters of both hooks (Linux 4.5).
pub(super) const CLSACT: &str = "clsact";

/// Its older form, which takes the same place and has no egress.
pub(super) const INGRESS: &str = "ingress";

/// Where a filter is: interface, hook, priority and handle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) ifindex: u32,
    pub(super) hook: Hook,
    pub(super) priority: u16,
    pub(super) handle: u32,
}

/// A filter that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Filter {
    pub(super) priority: u16,
    /// Zero where the kernel speaks of the priority as a whole.
    pub(super) handle: u32,
    /// The program; `None` for a filter of another kind.
    pub(super) program: Option<Program>,
}

/// The program of a filter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Program {
    pub(super) id: u32,
    pub(super) name: String,
}

/// Traffic control in the network namespace in which this was opened.
#[derive(Debug)]
pub(super) struct Tc {
    netlink: Questions,
}

impl Tc {
    /// Opens a netlink socket in the network namespace of this thread. Call within a tokio runtime.
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self { netlink: Questions::open()? })
    }

    /// The interfaces that have a qdisc of this kind.
    pub(super) async fn interfaces_with(&self, kind: &str) -> io::Result<BTreeSet<u32>> {
        let kind = TcAttribute::Kind(kind.to_owned());
        let all: Vec<TcMessage> =
            self.netlink.handle().qdisc().get().execute().try_collect().await.map_err(into_io)?;
        let matching = all.into_iter().filter(|qdisc| qdisc.attributes.contains(&kind));
        Ok(matching.map(|qdisc| qdisc.header.index.cast_unsigned()).collect())
    }

    /// Adds a clsact qdisc. `AlreadyExists` where one is there, or one of kind [`INGRESS`].
    pub(super) async fn add_clsact(&self, ifindex: u32) -> io::Result<()> {
        let mut message = qdisc_message(ifindex)?;
        message.attributes = vec![TcAttribute::Kind(CLSACT.to_owned())];
        self.request(RouteNetlinkMessage::NewQueueDiscipline(message), NLM_F_CREATE | NLM_F_EXCL).await
    }

    /// Removes the clsact qdisc with every filter in it.
    pub(super) async fn delete_clsact(&self, ifindex: u32) -> io::Result<()> {
        self.request(RouteNetlinkMessage::DelQueueDiscipline(qdisc_message(ifindex)?), 0).await
    }

    /// The filters of a hook; none where the interface or its qdisc is missing.
    pub(super) async fn filters(&self, ifindex: u32, hook: Hook) -> io::Result<Vec<Filter>> {
        let mut filters = self.netlink.handle().traffic_filter(index(ifindex)?);
        let request = match hook {
            Hook::Ingress => filters.get().ingress(),
            Hook::Egress => filters.get().egress(),
        };
        let found: Result<Vec<TcMessage>, _> = request.execute().try_collect().await;
        match found.map_err(into_io) {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(Vec::new()),
            found => Ok(found?.iter().map(parse).collect()),
        }
    }

    /// Makes a filter of the program, whose return value is the verdict. One that is there gets the new program between
    /// two packets.
    pub(super) async fn put_filter(
        &self,
        place: Place,
        program: BorrowedFd<'_>,
        name: &str,
    ) -> io::Result<()> {
        let mut message = filter_message(place)?;
        message.attributes.push(TcAttribute::Options(vec![
            TcOption::Bpf(TcFilterBpfOption::ProgFd(program.as_raw_fd().cast_unsigned())),
            TcOption::Bpf(TcFilterBpfOption::ProgName(name.to_owned())),
            TcOption::Bpf(TcFilterBpfOption::Flags(TcBpfFlags::DirectAction)),
        ]));
        self.request(RouteNetlinkMessage::NewTrafficFilter(message), NLM_F_CREATE).await
    }

    /// Removes a filter of a program.
    pub(super) async fn delete_filter(&self, place: Place) -> io::Result<()> {
        self.request(RouteNetlinkMessage::DelTrafficFilter(filter_message(place)?), 0).await
    }

    async fn request(&self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        let mut message = NetlinkMessage::from(message);
        message.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        acknowledged(self.netlink.handle().clone().request(message).map_err(into_io)?).await
    }
}

async fn acknowledged(
    mut answers: impl Stream<Item = NetlinkMessage<RouteNetlinkMessage>> + Unpin,
) -> io::Result<()> {
    while let Some(answer) = answers.next().await {
        if let NetlinkPayload::Error(error) = answer.payload
            && error.code.is_some()
        {
            return Err(error.to_io());
        }
    }
    Ok(())
}

fn qdisc_message(ifindex: u32) -> io::Result<TcMessage> {
    let mut message = TcMessage::with_index(index(ifindex)?);
    message.header.parent = TcHandle::CLSACT;
    message.header.handle = TcHandle { major: 0xffff, minor: 0 };
    Ok(message)
}

fn filter_message(place: Place) -> io::Result<TcMessage> {
    let minor = match place.hook {
        Hook::Ingress => TcHandle::MIN_INGRESS,
        Hook::Egress => TcHandle::MIN_EGRESS,
    };
    /// `ETH_P_ALL` in network byte order.
    const EVERY_PROTOCOL: u16 = 0x0003_u16.to_be();
    let mut message = TcMessage::with_index(index(place.ifindex)?);
    message.header.parent = TcHandle { major: 0xffff, minor };
    message.header.handle = TcHandle::from(place.handle);
    message.header.info = (u32::from(place.priority) << 16) | u32::from(EVERY_PROTOCOL);
    message.attributes.push(TcAttribute::Kind(TcFilterBpf::KIND.to_owned()));
    Ok(message)
}

fn parse(message: &TcMessage) -> Filter {
    let mut program = None;
    for attribute in &message.attributes {
        match attribute {
            TcAttribute::Kind(kind) if kind == TcFilterBpf::KIND => {
                program.get_or_insert_default();
            }
            TcAttribute::Options(options) => options.iter().for_each(|option| match option {
                TcOption::Bpf(TcFilterBpfOption::ProgId(id)) => {
                    program.get_or_insert_with(Program::default).id = *id;
                }
                TcOption::Bpf(TcFilterBpfOption::ProgName(name)) => {
                    program.get_or_insert_with(Program::default).name.clone_from(name);
                }
                _ => {}
            }),
            _ => {}
        }
    }
    let priority = (message.header.info >> 16) as u16;
    Filter { priority, handle: message.header.handle.into(), program }
}

fn index(ifindex: u32) -> io::Result<i32> {
    i32::try_from(ifindex).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))
}
