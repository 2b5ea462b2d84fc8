//! The eBPF programs that this binary carries.

/// The ELF object that lb-ebpf compiles to, aligned as an ELF reader needs it. The build script puts it there.
pub static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/readylb-ebpf"));
