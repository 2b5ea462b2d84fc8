//! The calls of bpf(2) that aya does not offer: TCX links by interface index (aya takes names, which may belong to
//! another interface by then), cgroup links that can be updated, what is attached where, and the lookup of many map entries
//! at once.
//!
//! The structures are the parts of `union bpf_attr` in `linux/bpf.h` that each command reads; the kernel takes the
//! rest as zero.

use std::{
    ffi::CString,
    io, mem,
    os::{
        fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use aya_obj::generated::{bpf_attach_type, bpf_cmd};

/// Which end of an interface's packet path a TCX program sits at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcxPlace {
    /// Packets that the interface receives; before every other program (`BPF_F_BEFORE`).
    IngressFirst,
    /// Packets that it sends; after every other program (`BPF_F_AFTER`).
    EgressLast,
}

impl TcxPlace {
    const fn attach_type(self) -> u32 {
        match self {
            Self::IngressFirst => bpf_attach_type::BPF_TCX_INGRESS as u32,
            Self::EgressLast => bpf_attach_type::BPF_TCX_EGRESS as u32,
        }
    }

    const fn order_flag(self) -> u32 {
        const BPF_F_BEFORE: u32 = 1 << 3;
        const BPF_F_AFTER: u32 = 1 << 4;
        match self {
            Self::IngressFirst => BPF_F_BEFORE,
            Self::EgressLast => BPF_F_AFTER,
        }
    }
}

/// Makes a TCX link (Linux 6.6). It lives as long as a descriptor or a pin of it.
///
/// # Errors
/// What the kernel says: `ENODEV` where the interface has gone, `EINVAL` before Linux 6.6.
pub fn tcx_link_create(program: BorrowedFd<'_>, ifindex: u32, place: TcxPlace) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attr {
        prog_fd: u32,
        target_ifindex: u32,
        attach_type: u32,
        flags: u32,
        relative_fd: u32,
        pad: u32,
        expected_revision: u64,
    }
    let mut attr = Attr {
        prog_fd: raw(program),
        target_ifindex: ifindex,
        attach_type: place.attach_type(),
        flags: place.order_flag(),
        relative_fd: 0,
        pad: 0,
        expected_revision: 0,
    };
    // SAFETY: BPF_LINK_CREATE reads the attribute only.
    unsafe { bpf(bpf_cmd::BPF_LINK_CREATE, &mut attr) }.map(owned)
}

/// Makes a link of a program to a cgroup (Linux 5.7), which other programs may be on too. It lives as long as a descriptor or
/// a pin of it, or the cgroup.
///
/// # Errors
/// What the kernel says: `EPERM` where somebody has put a program there that admits no other.
pub fn cgroup_link_create(
    program: BorrowedFd<'_>,
    cgroup: BorrowedFd<'_>,
    attach_type: bpf_attach_type,
) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attr {
        prog_fd: u32,
        target_fd: u32,
        attach_type: u32,
        flags: u32,
    }
    let mut attr =
        Attr { prog_fd: raw(program), target_fd: raw(cgroup), attach_type: attach_type as u32, flags: 0 };
    // SAFETY: BPF_LINK_CREATE reads the attribute only.
    unsafe { bpf(bpf_cmd::BPF_LINK_CREATE, &mut attr) }.map(owned)
}

/// Puts another program into a link, in one step for the packets.
///
/// # Errors
/// What the kernel says: `ENOLINK` where the link's interface or cgroup has gone.
pub fn link_update(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    #[repr(C)]
    struct Attr {
        link_fd: u32,
        new_prog_fd: u32,
        flags: u32,
        old_prog_fd: u32,
    }
    let mut attr = Attr { link_fd: raw(link), new_prog_fd: raw(program), flags: 0, old_prog_fd: 0 };
    // SAFETY: BPF_LINK_UPDATE reads the attribute only.
    unsafe { bpf(bpf_cmd::BPF_LINK_UPDATE, &mut attr) }.map(drop)
}

/// Takes the link off its interface or cgroup, although descriptors or pins of it remain.
///
/// # Errors
/// What the kernel says. That the interface has gone already is no error.
pub fn link_detach(link: BorrowedFd<'_>) -> io::Result<()> {
    let mut attr: u32 = raw(link);
    // SAFETY: BPF_LINK_DETACH reads the attribute only.
    match unsafe { bpf(bpf_cmd::BPF_LINK_DETACH, &mut attr) } {
        Err(error) if error.raw_os_error() != Some(libc::ENOLINK) => Err(error),
        _ => Ok(()),
    }
}

/// The id of a link, unique in the running kernel.
///
/// # Errors
/// What the kernel says, for instance where the descriptor is not a link.
pub fn link_id(link: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(link_info(link)?.id)
}

/// The id of the cgroup that a link is on; 0 where that has gone, or the link has been detached.
///
/// # Errors
/// What the kernel says, for instance where the descriptor is not a link.
pub fn link_cgroup(link: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(link_info(link)?.cgroup_id)
}

/// The beginning of `struct bpf_link_info`.
#[repr(C)]
#[derive(Default)]
struct LinkInfo {
    link_type: u32,
    id: u32,
    prog_id: u32,
    pad: u32,
    /// Of the link of a cgroup only.
    cgroup_id: u64,
}

fn link_info(link: BorrowedFd<'_>) -> io::Result<LinkInfo> {
    #[repr(C)]
    struct Attr {
        bpf_fd: u32,
        info_len: u32,
        info: u64,
    }
    let mut info = LinkInfo::default();
    let mut attr =
        Attr { bpf_fd: raw(link), info_len: size_of_u32::<LinkInfo>(), info: (&raw mut info).addr() as u64 };
    // SAFETY: the kernel writes at most `info_len` bytes to `info`, which outlives the call.
    unsafe { bpf(bpf_cmd::BPF_OBJ_GET_INFO_BY_FD, &mut attr) }?;
    Ok(info)
}

/// A TCX program on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcxProgram {
    /// Id of the program.
    pub program_id: u32,
    /// Id of the link that holds it; zero where it was attached without one.
    pub link_id: u32,
}

/// The TCX programs of an interface of the caller's network namespace, in the order in which they run.
///
/// # Errors
/// What the kernel says: `EINVAL` before Linux 6.6, `ENODEV` where the interface has gone.
pub fn tcx_query(ifindex: u32, place: TcxPlace) -> io::Result<Vec<TcxProgram>> {
    #[repr(C)]
    struct Attr {
        target_ifindex: u32,
        attach_type: u32,
        query_flags: u32,
        attach_flags: u32,
        prog_ids: u64,
        count: u32,
        pad: u32,
        prog_attach_flags: u64,
        link_ids: u64,
        link_attach_flags: u64,
        revision: u64,
    }
    /// The kernel allows 64 programs a hook (`BPF_MPROG_MAX`).
    const MOST: u32 = 64;
    let mut programs = [0u32; MOST as usize];
    let mut links = [0u32; MOST as usize];
    let mut attr = Attr {
        target_ifindex: ifindex,
        attach_type: place.attach_type(),
        query_flags: 0,
        attach_flags: 0,
        prog_ids: programs.as_mut_ptr().addr() as u64,
        count: MOST,
        pad: 0,
        prog_attach_flags: 0,
        link_ids: links.as_mut_ptr().addr() as u64,
        link_attach_flags: 0,
        revision: 0,
    };
    // SAFETY: the kernel writes at most `count` ids to either array, and both outlive the call.
    unsafe { bpf(bpf_cmd::BPF_PROG_QUERY, &mut attr) }?;
    let found = programs.iter().zip(&links).take(attr.count as usize);
    Ok(found.map(|(&program_id, &link_id)| TcxProgram { program_id, link_id }).collect())
}

/// Pins a link.
///
/// # Errors
/// What the kernel says: `EEXIST` where the path exists, `EPERM` where its last part holds a dot.
pub fn pin(object: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut attr = PathAttr { pathname: path.as_ptr().addr() as u64, bpf_fd: raw(object), file_flags: 0 };
    // SAFETY: the kernel reads the path up to its NUL, and the path outlives the call.
    unsafe { bpf(bpf_cmd::BPF_OBJ_PIN, &mut attr) }.map(drop)
}

/// Opens a pinned link.
///
/// # Errors
/// What the kernel says: `ENOENT` where nothing is pinned there.
pub fn open_pin(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut attr = PathAttr { pathname: path.as_ptr().addr() as u64, bpf_fd: 0, file_flags: 0 };
    // SAFETY: as in `pin`.
    unsafe { bpf(bpf_cmd::BPF_OBJ_GET, &mut attr) }.map(owned)
}

#[repr(C)]
struct PathAttr {
    pathname: u64,
    bpf_fd: u32,
    file_flags: u32,
}

/// Where a walk through a hash map stands. It counts buckets, so what is deleted or added meanwhile neither ends the
/// walk early nor makes it start again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor(u32);

/// Reads up to `keys.len()` entries of a hash map from `from` on (the beginning for `None`; Linux 5.6). Returns how
/// many were read, and where to go on; `None` at the end.
///
/// # Errors
/// What the kernel says: `ENOSPC` where one bucket holds more entries than fit.
///
/// # Safety
/// `K` and `V` must have the key and value size of the map, and every bit pattern must be a value of theirs.
pub unsafe fn map_lookup_batch<K, V>(
    map: BorrowedFd<'_>,
    from: Option<Cursor>,
    keys: &mut [mem::MaybeUninit<K>],
    values: &mut [mem::MaybeUninit<V>],
) -> io::Result<(usize, Option<Cursor>)> {
    #[repr(C)]
    struct Attr {
        in_batch: u64,
        out_batch: u64,
        keys: u64,
        values: u64,
        count: u32,
        map_fd: u32,
        elem_flags: u64,
        flags: u64,
    }
    let room = keys.len().min(values.len());
    let in_batch = from.map_or(0, |Cursor(bucket)| bucket);
    let mut out_batch = 0u32;
    let mut attr = Attr {
        in_batch: if from.is_some() { (&raw const in_batch).addr() as u64 } else { 0 },
        out_batch: (&raw mut out_batch).addr() as u64,
        keys: keys.as_mut_ptr().addr() as u64,
        values: values.as_mut_ptr().addr() as u64,
        count: u32::try_from(room).unwrap_or(u32::MAX),
        map_fd: raw(map),
        elem_flags: 0,
        flags: 0,
    };
    // SAFETY: the kernel reads 4 bytes (a bucket number) from `in_batch`, writes 4 to `out_batch` and at most `count`
    // keys and values, whose sizes the caller vouches for.
    match unsafe { bpf(bpf_cmd::BPF_MAP_LOOKUP_BATCH, &mut attr) } {
        Ok(_) => Ok((attr.count as usize, Some(Cursor(out_batch)))),
        // The last entries are there too.
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok((attr.count as usize, None)),
        Err(error) => Err(error),
    }
}

/// # Safety
/// `attr` must be what `command` reads and writes, with pointers that are valid for it.
unsafe fn bpf<A>(command: bpf_cmd, attr: &mut A) -> io::Result<libc::c_long> {
    // SAFETY: the caller's promise; the size is that of the attribute.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command as libc::c_long, attr, size_of::<A>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[expect(clippy::cast_possible_truncation, reason = "the kernel's descriptors are C ints")]
fn owned(descriptor: libc::c_long) -> OwnedFd {
    // SAFETY: the kernel has just made the descriptor for us (with close-on-exec, as for every bpf(2) object).
    unsafe { OwnedFd::from_raw_fd(descriptor as i32) }
}

fn raw(descriptor: BorrowedFd<'_>) -> u32 {
    descriptor.as_raw_fd().cast_unsigned()
}

#[expect(clippy::cast_possible_truncation, reason = "structures of a few bytes")]
const fn size_of_u32<T>() -> u32 {
    size_of::<T>() as u32
}
