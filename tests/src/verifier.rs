//! What the programs cost the verifier, and what it made of them, as the kernel tells of every loaded program.

use std::{fmt, io, mem, os::fd::AsRawFd as _};

use aya::{
    EbpfLoader,
    programs::{Program, ProgramError, ProgramFd},
};
use aya_obj::generated::{bpf_attr, bpf_cmd, bpf_insn, bpf_prog_info};
use lb_userspace::{
    datapath::{Features, HostRouting, SIZABLE},
    object::OBJECT,
};

/// How many instructions the kernel follows through a program at most (`BPF_COMPLEXITY_LIMIT_INSNS`).
pub const PROCESSED_LIMIT: u32 = 1_000_000;

/// How many bytes of stack a program has with all functions that are called in one another (`MAX_BPF_STACK`).
pub const STACK_LIMIT: u32 = 512;

/// One program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Its name in the object.
    pub program: String,
    /// Instructions that the verifier has followed, on every way together; 0 before Linux 5.16, which does not tell.
    pub processed: u32,
    /// Instructions after the verifier, its functions included.
    pub translated: u32,
    /// Bytes of machine code; 0 without a just-in-time compiler.
    pub jited: u32,
    /// Bytes of stack in the longest chain of calls.
    pub stack: u32,
}

/// Loads every program of the object, whatever its type, as the agent does on this kernel, with these globals set beside.
pub fn costs(globals: &[(&str, u32)]) -> Vec<Cost> {
    let mut loader = EbpfLoader::new();
    for name in SIZABLE {
        loader.map_max_entries(name, 64);
    }
    let coarse_clock = u32::from(Features::probe(HostRouting::Stack).coarse_clock.used);
    loader.override_global("COARSE_CLOCK", &coarse_clock, true);
    for (name, value) in globals {
        loader.override_global(name, value, true);
    }
    let mut ebpf = loader.load(OBJECT).expect("the object loads (the tests need root)");
    let mut costs: Vec<_> = ebpf
        .programs_mut()
        .map(|(name, program)| match load(program) {
            Ok(fd) => cost(name, &fd).expect("the kernel tells of a loaded program"),
            Err(error) => panic!("the verifier refuses {name}: {error}"),
        })
        .collect();
    costs.sort_by(|a, b| a.program.cmp(&b.program));
    costs
}

fn load(program: &mut Program) -> Result<ProgramFd, ProgramError> {
    macro_rules! load {
        ($($kind:ident),+) => {
            match program {
                $(Program::$kind(program) => {
                    program.load()?;
                    Ok(program.fd()?.try_clone()?)
                })+
                other => panic!("a program of type {:?}: name it here", other.prog_type()),
            }
        };
    }
    load!(SchedClassifier, Xdp, CgroupSockAddr, CgroupSock, CgroupSkb, SkLookup, SockOps)
}

fn cost(name: &str, program: &ProgramFd) -> io::Result<Cost> {
    let sizes = info(program, &mut [])?;
    let len = sizes.xlated_prog_len as usize / size_of::<bpf_insn>();
    // SAFETY: integers, of which zero is a value.
    let mut instructions = vec![unsafe { mem::zeroed::<bpf_insn>() }; len];
    let info = info(program, &mut instructions)?;
    Ok(Cost {
        program: name.to_owned(),
        processed: info.verified_insns,
        translated: info.xlated_prog_len / 8,
        jited: info.jited_prog_len,
        stack: Functions::of(&instructions).stack(0),
    })
}

/// `BPF_OBJ_GET_INFO_BY_FD`; the translated instructions are written to a buffer, as far as it has room.
fn info(program: &ProgramFd, instructions: &mut [bpf_insn]) -> io::Result<bpf_prog_info> {
    use std::os::fd::AsFd as _;
    // SAFETY: zero is a value of every member.
    let (mut info, mut attr): (bpf_prog_info, bpf_attr) = unsafe { (mem::zeroed(), mem::zeroed()) };
    info.xlated_prog_len = u32::try_from(size_of_val(instructions)).expect("a program is short");
    info.xlated_prog_insns = instructions.as_mut_ptr() as u64;
    attr.info.bpf_fd = program.as_fd().as_raw_fd().cast_unsigned();
    attr.info.info_len = u32::try_from(size_of::<bpf_prog_info>()).expect("it is short");
    attr.info.info = (&raw mut info) as u64;
    // SAFETY: the attribute is of this command, and what it points to lives longer than the call.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, bpf_cmd::BPF_OBJ_GET_INFO_BY_FD, &raw mut attr, size_of::<bpf_attr>())
    };
    if result == 0 { Ok(info) } else { Err(io::Error::last_os_error()) }
}

/// The functions of a translated program, each from its first instruction to the next function.
struct Functions<'a> {
    instructions: &'a [bpf_insn],
    /// Where they begin, sorted.
    begins: Vec<usize>,
}

impl<'a> Functions<'a> {
    fn of(instructions: &'a [bpf_insn]) -> Self {
        let calls = instructions.iter().enumerate().filter_map(|(at, it)| called(at, it));
        let mut begins: Vec<_> = calls.chain([0]).collect();
        begins.sort_unstable();
        begins.dedup();
        Self { instructions, begins }
    }

    fn range(&self, begin: usize) -> std::ops::Range<usize> {
        let next = self.begins.iter().copied().find(|&other| other > begin);
        begin..next.unwrap_or(self.instructions.len())
    }

    /// Bytes of the stack that a function takes with all that it calls. Each frame counts in steps of 32, as kernels before
    /// 6.8 do it; later ones take 16.
    fn stack(&self, begin: usize) -> u32 {
        let range = self.range(begin);
        let own = frame(&self.instructions[range.clone()]).max(1).next_multiple_of(32);
        let called = range.filter_map(|at| called(at, &self.instructions[at]));
        own + called.map(|function| self.stack(function)).max().unwrap_or(0)
    }
}

const FRAME_POINTER: u8 = 10;

/// Which function an instruction calls. The kernel leaves the distance in the offset of the instruction once it has compiled
/// the functions.
fn called(at: usize, instruction: &bpf_insn) -> Option<usize> {
    const CALL: u8 = 0x85;
    const PSEUDO_CALL: u8 = 1;
    let is_call = instruction.code == CALL && instruction.src_reg() == PSEUDO_CALL;
    is_call.then(|| (at + 1).strict_add_signed(instruction.off.into()))
}

/// The lowest place of the stack that a function reaches, as the compiler writes it: with the frame pointer itself as the
/// base, or with a copy of it to which a constant is added.
fn frame(instructions: &[bpf_insn]) -> u32 {
    const MOVE: u8 = 0xbf;
    const ADD: u8 = 0x07;
    let mut copies = [false; 16];
    let mut lowest = 0;
    for it in instructions {
        let (to, from) = (usize::from(it.dst_reg()), it.src_reg());
        // Loads have their base in the source register, stores in the other.
        match it.code & 0x07 {
            1 if from == FRAME_POINTER => lowest = lowest.min(i32::from(it.off)),
            2 | 3 if it.dst_reg() == FRAME_POINTER => lowest = lowest.min(i32::from(it.off)),
            _ => {}
        }
        if it.code == ADD && copies[to] {
            lowest = lowest.min(it.imm);
        }
        copies[to] = it.code == MOVE && from == FRAME_POINTER;
    }
    lowest.unsigned_abs()
}

/// A table in Markdown.
pub struct Table<'a>(pub &'a [Cost]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| program | instructions processed | instructions | machine code, bytes | stack, bytes |"
        )?;
        writeln!(f, "|---|---:|---:|---:|---:|")?;
        for Cost { program, processed, translated, jited, stack } in self.0 {
            writeln!(f, "| `{program}` | {processed} | {translated} | {jited} | {stack} |")?;
        }
        Ok(())
    }
}
