//! From the compiled object to programs in the kernel over pinned maps.

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};

use aya::{
    EbpfLoader,
    maps::{MapError as AyaMapError, MapInfo},
    programs::{CgroupSockAddr, Program, ProgramError, SchedClassifier},
};
use aya_obj::Object;
use lb_common::maps;

use super::{
    Hook,
    sock::{Scope, SocketHook, SocketPrograms},
};
use crate::causes::with_causes;

/// A global variable of the object: which clock the programs read.
const COARSE_CLOCK: &str = "COARSE_CLOCK";

/// Global variables of the object: whose sockets are served, and whether a program may say what a call fails with.
const EVERY_NAMESPACE: &str = "EVERY_NAMESPACE";
const NAMESPACE: &str = "NAMESPACE";
const SET_RETVAL: &str = "SET_RETVAL";
/// Another: whether packets of flows go past the host's stack.
const HOST_ROUTING: &str = "HOST_ROUTING";

/// The maps whose size is the user's choice (`--map-size`); that of the others is part of the schema.
pub const SIZABLE: [&str; 8] = [
    maps::SERVICES,
    maps::BACKENDS,
    maps::BACKEND_STATE,
    maps::FLOWS_NEW,
    maps::FLOWS,
    maps::AFFINITY,
    maps::SOURCE_RANGES,
    maps::SOCKETS,
];

/// Why the programs are not in the kernel.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The object is not one.
    #[error("the eBPF object in this binary cannot be read: {0}")]
    Object(String),
    /// The object lacks something.
    #[error("the eBPF object in this binary has no {0}")]
    Missing(&'static str),
    /// A size for a map that has none to choose.
    #[error("--map-size {name}: there is no such map, or its size is fixed; choose among {}", SIZABLE.join(", "))]
    NotSizable {
        /// The name given.
        name: String,
    },
    /// A pinned map has another size than this start asks for.
    #[error(
        "map {map} is pinned at {} with room for {pinned} entries, and this start asks for {wanted}; start with \
         --map-size {map}={pinned}, or give up its contents with `readylb cleanup`",
        path.display()
    )]
    OtherSize {
        /// Name of the map.
        map: &'static str,
        /// Where it is pinned.
        path: PathBuf,
        /// Its entries.
        pinned: u32,
        /// The entries asked for.
        wanted: u32,
    },
    /// A pinned map was made by something else.
    #[error(
        "map {map} is pinned at {} with {what} {pinned} where this build has {wanted}; remove it with `readylb cleanup`",
        path.display()
    )]
    OtherLayout {
        /// Name of the map.
        map: &'static str,
        /// Where it is pinned.
        path: PathBuf,
        /// What differs.
        what: &'static str,
        /// As pinned.
        pinned: u32,
        /// As in the object.
        wanted: u32,
    },
    /// A pin cannot be examined.
    #[error("cannot examine {}: {cause}", path.display())]
    Pin {
        /// The pin.
        path: PathBuf,
        /// What the kernel said.
        cause: String,
    },
    /// The kernel refuses the object.
    #[error("the kernel refuses the eBPF object: {0}")]
    Refused(String),
    /// The kernel refuses a program.
    #[error("the kernel refuses the program {program}: {cause}")]
    Program {
        /// Name of the program.
        program: &'static str,
        /// What the kernel said, with the verifier's log.
        cause: String,
    },
}

/// What is to be loaded, and how.
pub(super) struct Load<'a> {
    /// The compiled object.
    pub(super) object: &'a [u8],
    /// Where the maps are pinned.
    pub(super) folder: &'a Path,
    /// Sizes of maps, in entries, where not the default.
    pub(super) sizes: &'a BTreeMap<String, u32>,
    /// Whether the programs read the tick's clock.
    pub(super) coarse_clock: bool,
    /// Whether a program may say what a socket's call fails with.
    pub(super) socket_errors: bool,
    /// Whose sockets are served; `None` leaves those programs out.
    pub(super) sockets: Option<Scope>,
    /// Whether packets of flows go past the host's stack.
    pub(super) host_routing: bool,
}

/// The programs, loaded and not attached.
#[derive(Debug)]
pub(super) struct Programs {
    ingress: OwnedFd,
    egress: OwnedFd,
}

impl Programs {
    pub(super) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { ingress: self.ingress.try_clone()?, egress: self.egress.try_clone()? })
    }

    pub(super) const fn at(&self, hook: Hook) -> &OwnedFd {
        match hook {
            Hook::Ingress => &self.ingress,
            Hook::Egress => &self.egress,
        }
    }
}

impl Load<'_> {
    /// Compares what is pinned with what the object defines, and with the sizes asked for. aya opens a pin without a
    /// look at its sizes, and the kernel would then write values of the pinned size into smaller buffers.
    fn check_pins(&self) -> Result<(), LoadError> {
        if let Some(name) = self.sizes.keys().find(|name| !SIZABLE.contains(&name.as_str())) {
            return Err(LoadError::NotSizable { name: name.clone() });
        }
        let object = Object::parse(self.object).map_err(|error| LoadError::Object(with_causes(&error)))?;
        for map in maps::ALL {
            let defined = object.maps.get(map).ok_or(LoadError::Missing(map))?;
            let path = self.folder.join(map);
            if !path.exists() {
                continue;
            }
            let examine =
                |error: AyaMapError| LoadError::Pin { path: path.clone(), cause: with_causes(&error) };
            let info = MapInfo::from_pin(&path).map_err(examine)?;
            let pinned_type = info.map_type().map_err(examine)? as u32;
            for (what, pinned, wanted) in [
                ("type", pinned_type, defined.map_type()),
                ("a key size of", info.key_size(), defined.key_size()),
                ("a value size of", info.value_size(), defined.value_size()),
                ("flags", info.map_flags(), defined.map_flags()),
            ] {
                if pinned != wanted {
                    return Err(LoadError::OtherLayout { map, path, what, pinned, wanted });
                }
            }
            // A size that nobody asks for is that of the pin: it was chosen at an earlier start, or was the default then.
            let kept = if SIZABLE.contains(&map) { info.max_entries() } else { defined.max_entries() };
            let wanted = self.sizes.get(map).copied().unwrap_or(kept);
            if info.max_entries() != wanted {
                return Err(LoadError::OtherSize { map, path, pinned: info.max_entries(), wanted });
            }
        }
        Ok(())
    }

    /// Opens the pinned maps, makes and pins those that are missing, and loads the programs over them. Those of sockets
    /// may fail by themselves: traffic through interfaces is served without them.
    pub(super) fn run(&self) -> Result<(Programs, Result<SocketPrograms, LoadError>), LoadError> {
        self.check_pins()?;
        let (coarse_clock, host_routing) = (u32::from(self.coarse_clock), u32::from(self.host_routing));
        let mut loader = EbpfLoader::new();
        loader.override_global(COARSE_CLOCK, &coarse_clock, true);
        let set_retval = u32::from(self.socket_errors);
        loader.override_global(SET_RETVAL, &set_retval, true);
        let (every_namespace, namespace) = match self.sockets {
            Some(Scope::Namespace(cookie)) => (0_u32, cookie),
            Some(Scope::Everybody) | None => (1, 0),
        };
        loader.override_global(EVERY_NAMESPACE, &every_namespace, true);
        loader.override_global(NAMESPACE, &namespace, true);
        loader.override_global(HOST_ROUTING, &host_routing, true);
        for map in maps::ALL {
            loader.map_pin_path(map, self.folder.join(map));
        }
        for (map, &size) in self.sizes {
            loader.map_max_entries(map, size);
        }
        let mut ebpf = loader.load(self.object).map_err(|error| LoadError::Refused(with_causes(&error)))?;
        let mut program = |name, load: fn(&mut Program) -> Result<OwnedFd, ProgramError>| {
            let program = ebpf.program_mut(name).ok_or(LoadError::Missing(name))?;
            load(program).map_err(|error| LoadError::Program { program: name, cause: with_causes(&error) })
        };
        let ingress = program(Hook::Ingress.program_name(), classifier)?;
        let egress = program(Hook::Egress.program_name(), classifier)?;
        let hooks = self.sockets.iter().flat_map(|_| SocketHook::ATTACH_ORDER);
        let sockets = hooks.map(|hook| Ok((hook, program(hook.name(), sock_addr)?))).collect();
        Ok((Programs { ingress, egress }, sockets))
    }
}

fn classifier(program: &mut Program) -> Result<OwnedFd, ProgramError> {
    let program: &mut SchedClassifier = program.try_into()?;
    program.load()?;
    Ok(program.fd()?.as_fd().try_clone_to_owned()?)
}

fn sock_addr(program: &mut Program) -> Result<OwnedFd, ProgramError> {
    let program: &mut CgroupSockAddr = program.try_into()?;
    program.load()?;
    Ok(program.fd()?.as_fd().try_clone_to_owned()?)
}
