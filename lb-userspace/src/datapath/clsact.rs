//! Programs as filters of a clsact qdisc: for kernels before 6.6, which have no TCX.
//!
//! Nothing but its place tells whose a filter is. Ours are found by a priority and a handle that nobody else uses, and
//! known by the program's name; before one is removed, also by the maps that its program uses ([`super::owned`]).

use std::{collections::BTreeSet, fs, io, os::fd::BorrowedFd, path::PathBuf};

use super::{
    Hook,
    hook::HookError,
    tc::{CLSACT, Filter, INGRESS, Place, Program, Tc},
};

/// The handle of our filters: "rl".
const HANDLE: u32 = 0x726c;

/// Our filters in one network namespace.
#[derive(Debug)]
pub(super) struct Clsact {
    tc: Tc,
    /// Holds a folder `<ifindex>` for each qdisc that readylb made: a BPF file system holds no ordinary files.
    made: PathBuf,
}

/// What [`Clsact::release`] did.
#[derive(Debug, Default)]
pub(super) struct Released {
    /// Filters removed.
    pub(super) filters: Vec<Hook>,
    /// Whether the qdisc was removed.
    pub(super) qdisc: bool,
    /// Filters at our place whose program is not ours: another agent's, or one whose maps were unpinned by hand.
    pub(super) left: Vec<Hook>,
}

impl Clsact {
    /// For the network namespace of this thread. Call within a tokio runtime.
    pub(super) fn open(made: PathBuf) -> io::Result<Self> {
        Ok(Self { tc: Tc::open()?, made })
    }

    /// Makes `program` the one filter of ours at this hook: in place where one is there.
    pub(super) async fn attach(
        &self,
        program: BorrowedFd<'_>,
        ifindex: u32,
        hook: Hook,
    ) -> Result<(), HookError> {
        self.ensure_qdisc(ifindex).await?;
        let filters = self.tc.filters(ifindex, hook).await?;
        if !is_free(&filters, hook) {
            return Err(HookError::Taken { priority: priority(hook), handle: HANDLE });
        }
        Ok(self.tc.put_filter(place(ifindex, hook), program, hook.program_name()).await?)
    }

    async fn ensure_qdisc(&self, ifindex: u32) -> Result<(), HookError> {
        let marker = self.marker(ifindex);
        // The marker comes first: dying between the two leaves a marker, which the next start tidies up, rather than
        // a qdisc that nobody removes.
        let marked = match fs::create_dir(&marker) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(error.into()),
        };
        let added = self.tc.add_clsact(ifindex).await;
        if added.is_err() && marked {
            fs::remove_dir(&marker)?;
        }
        match added {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // On such a qdisc the kernel takes a filter for egress and runs it at ingress.
                if self.tc.interfaces_with(INGRESS).await?.contains(&ifindex) {
                    return Err(HookError::IngressQdisc);
                }
                Ok(())
            }
            added => Ok(added?),
        }
    }

    /// Removes our filters from an interface, which may have gone, and its clsact qdisc if readylb made it and nobody
    /// else uses it. `is_ours` says it of a program's id.
    pub(super) async fn release(&self, ifindex: u32, is_ours: impl Fn(u32) -> bool) -> io::Result<Released> {
        let mut released = Released::default();
        for hook in Hook::DETACH_ORDER {
            let filters = self.tc.filters(ifindex, hook).await?;
            match filters.iter().find_map(|filter| our_program(filter, hook)) {
                Some(program) if is_ours(program.id) => {
                    self.tc.delete_filter(place(ifindex, hook)).await?;
                    released.filters.push(hook);
                }
                Some(_) => released.left.push(hook),
                None => {}
            }
        }
        let marker = self.marker(ifindex);
        if marker.exists() {
            released.qdisc = self.remove_unused_qdisc(ifindex).await?;
            fs::remove_dir(&marker)?;
        }
        Ok(released)
    }

    async fn remove_unused_qdisc(&self, ifindex: u32) -> io::Result<bool> {
        if !self.tc.interfaces_with(CLSACT).await?.contains(&ifindex) {
            return Ok(false);
        }
        for hook in Hook::DETACH_ORDER {
            if !self.tc.filters(ifindex, hook).await?.is_empty() {
                return Ok(false);
            }
        }
        self.tc.delete_clsact(ifindex).await?;
        Ok(true)
    }

    /// The interfaces where something of ours may be: those with a clsact qdisc, and those for which we remember that
    /// we made one.
    pub(super) async fn interfaces(&self) -> io::Result<BTreeSet<u32>> {
        let mut interfaces = self.tc.interfaces_with(CLSACT).await?;
        for entry in fs::read_dir(&self.made)? {
            interfaces.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
        }
        Ok(interfaces)
    }

    fn marker(&self, ifindex: u32) -> PathBuf {
        self.made.join(ifindex.to_string())
    }
}

/// Ours go before and after those that `tc` chooses, which is from 49152 downwards, or one less than the first. The
/// latter is why ingress does not have 1: others need room before it. It is also what CNIs use for themselves, and a
/// filter of another kind at the same priority would keep ours out.
const fn priority(hook: Hook) -> u16 {
    match hook {
        Hook::Ingress => 50,
        Hook::Egress => 0xfff0,
    }
}

const fn place(ifindex: u32, hook: Hook) -> Place {
    Place { ifindex, hook, priority: priority(hook), handle: HANDLE }
}

/// Whether our place is empty, or ours. A priority holds filters of one kind only.
fn is_free(filters: &[Filter], hook: Hook) -> bool {
    let mut same_priority = filters.iter().filter(|filter| filter.priority == priority(hook));
    same_priority.all(|filter| match &filter.program {
        None => false,
        Some(program) => filter.handle != HANDLE || program.name == hook.program_name(),
    })
}

/// The program of a filter that is at our place and has our name.
fn our_program(filter: &Filter, hook: Hook) -> Option<&Program> {
    let at_our_place = filter.priority == priority(hook) && filter.handle == HANDLE;
    filter.program.as_ref().filter(|program| at_our_place && program.name == hook.program_name())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOOK: Hook = Hook::Ingress;
    const OUR_PRIORITY: u16 = priority(HOOK);

    fn filter(priority: u16, handle: u32, program: Option<&str>) -> Filter {
        let program = program.map(|name| Program { id: 7, name: name.to_owned() });
        Filter { priority, handle, program }
    }

    #[test]
    fn our_place_is_free_unless_somebody_else_is_at_it() {
        let ours = HOOK.program_name();
        for (name, filters, want_free, want_ours) in [
            ("nothing there", vec![], true, false),
            ("ours from before", vec![filter(OUR_PRIORITY, HANDLE, Some(ours))], true, true),
            ("a CNI's at priority 1", vec![filter(1, HANDLE, Some("cil_from_netdev"))], true, false),
            ("a program at our priority", vec![filter(OUR_PRIORITY, 1, Some("other"))], true, false),
            ("a program at our place", vec![filter(OUR_PRIORITY, HANDLE, Some("other"))], false, false),
            ("another kind at our priority", vec![filter(OUR_PRIORITY, 1, None)], false, false),
        ] {
            assert_eq!(is_free(&filters, HOOK), want_free, "{name}");
            assert_eq!(filters.iter().any(|filter| our_program(filter, HOOK).is_some()), want_ours, "{name}");
        }
    }
}
