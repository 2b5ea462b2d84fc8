//! The direction of imports, checked.
//!
//! The table is ARCHITECTURE in a form that can fail. A rule may speak of a file that does not exist yet.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};

mod references;

use references::references;

/// What some modules of a crate may not name, and why.
struct Rule {
    /// The source folder of the crate.
    root: &'static str,
    /// Modules in it, each with all that is below it. Empty: all modules.
    modules: &'static [&'static str],
    /// Modules that may, each with all that is below it.
    except: &'static [&'static str],
    /// Paths as an import has them, `crate::` for a module of the same crate, each with all that is below it.
    forbidden: &'static [&'static str],
    /// The second half of the message.
    because: &'static str,
}

const AGENT: &str = "lb-userspace/src";
const PROGRAMS: &str = "lb-ebpf/src";

const RULES: &[Rule] = &[
    Rule {
        root: AGENT,
        modules: &["model", "ids", "endpoints", "desired", "render", "state", "plan"],
        except: &[],
        forbidden: &["tokio", "kube", "k8s_openapi", "aya", "aya_obj", "nix", "libc", "rtnetlink"],
        because: "the core runs without a cluster and without a kernel",
    },
    Rule {
        root: AGENT,
        modules: &["model", "ids", "endpoints", "desired", "render", "state", "plan"],
        except: &[],
        forbidden: &["crate::probe", "crate::datapath", "crate::netlink", "crate::admin", "crate::cli"],
        because: "the core knows neither where objects come from nor where operations go",
    },
    Rule {
        root: AGENT,
        modules: &["model", "ids", "endpoints", "desired", "plan"],
        except: &["model::store", "model::claims"],
        forbidden: &["crate::source"],
        because: "the events of the sources end in the store",
    },
    Rule {
        root: AGENT,
        modules: &["model"],
        except: &[],
        forbidden: &["crate::endpoints", "crate::desired", "crate::plan"],
        because: "the order is model, endpoints, desired, plan",
    },
    Rule {
        root: AGENT,
        modules: &["endpoints"],
        except: &[],
        forbidden: &["crate::desired", "crate::plan"],
        because: "the order is model, endpoints, desired, plan",
    },
    Rule {
        root: AGENT,
        modules: &["desired"],
        except: &[],
        forbidden: &["crate::plan"],
        because: "the order is model, endpoints, desired, plan",
    },
    Rule {
        root: AGENT,
        modules: &[],
        except: &["source::convert"],
        forbidden: &["k8s_openapi"],
        because: "the types of the Kubernetes API meet the model in source/convert only",
    },
    Rule {
        root: AGENT,
        modules: &["datapath"],
        except: &[],
        forbidden: &["crate::model", "crate::endpoints", "crate::desired", "crate::source"],
        because: "the datapath never sees a Service",
    },
    Rule {
        root: AGENT,
        modules: &[],
        except: &["agent", "cli", "main"],
        forbidden: &["crate::agent"],
        because: "the agent puts the parts together and no part knows it",
    },
    Rule {
        root: PROGRAMS,
        modules: &["lookup", "nat", "flow", "icmp", "fragment", "fib"],
        except: &[],
        forbidden: &["crate::tc", "crate::xdp", "crate::sock"],
        because: "hooks use the steps, not the other way round",
    },
    Rule {
        root: PROGRAMS,
        modules: &["packet", "ip", "ctx", "maps", "settings", "count"],
        except: &[],
        forbidden: &[
            "crate::tc",
            "crate::xdp",
            "crate::sock",
            "crate::lookup",
            "crate::nat",
            "crate::flow",
            "crate::icmp",
            "crate::fib",
        ],
        because: "hooks and steps stand on packet, ctx, maps, settings and count",
    },
];

/// Checks every file that a rule may be about, and names each offence with its line.
pub(crate) fn check(workspace: &Path) -> Result<()> {
    let mut offences = Vec::new();
    for root in [AGENT, PROGRAMS] {
        let folder = workspace.join(root);
        for file in rust_files(&folder)? {
            let text =
                fs::read_to_string(&file).with_context(|| format!("{} cannot be read", file.display()))?;
            let name = file.strip_prefix(&folder).unwrap_or(&file).to_string_lossy();
            offences.extend(offences_of(root, &name, &text)?);
        }
    }
    if !offences.is_empty() {
        bail!("imports against the direction:\n  {}", offences.join("\n  "));
    }
    Ok(())
}

/// The offences of one file; `file` is its path from `root`.
fn offences_of(root: &str, file: &str, text: &str) -> Result<Vec<String>> {
    let module = file.trim_end_matches(".rs").trim_end_matches("/mod").replace('/', "::");
    let listed = |list: &[&str]| list.iter().any(|of| is_in(&module, of));
    let rules = RULES
        .iter()
        .filter(|rule| rule.root == root && (rule.modules.is_empty() || listed(rule.modules)))
        .filter(|rule| !listed(rule.except));
    let inside = if ["lib", "main"].contains(&module.as_str()) { "" } else { &module };
    let named = references(text, inside).with_context(|| format!("{root}/{file} cannot be read as Rust"))?;
    let mut offences = Vec::new();
    for rule in rules {
        for (line, path) in &named {
            if rule.forbidden.iter().any(|of| is_in(path, of)) {
                offences.push(format!("{root}/{file}:{line}: names {path}, but {}", rule.because));
            }
        }
    }
    Ok(offences)
}

/// Whether `path` is `of` or below it.
fn is_in(path: &str, of: &str) -> bool {
    path.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

fn rust_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries =
            fs::read_dir(&folder).with_context(|| format!("{} cannot be read", folder.display()))?;
        for entry in entries {
            let path = entry.with_context(|| format!("{} cannot be read", folder.display()))?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension() == Some("rs".as_ref()) {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(file: &str, text: &str) -> Vec<String> {
        offences_of(AGENT, file, text).unwrap()
    }

    const NONE: [&str; 0] = [];

    #[test]
    fn the_core_may_not_name_the_runtime_in_any_spelling() {
        for text in [
            "use tokio::sync::mpsc;",
            "use {std::fmt, tokio::time};",
            "use ::tokio::time;",
            "use tokio as runtime;",
            "fn f() { tokio::spawn(async {}); }",
            "fn f() { println!(\"{}\", tokio::time::Instant::now()); }",
            "#[tokio::test] async fn t() {}",
        ] {
            assert_eq!(agent("plan.rs", text).len(), 1, "{text}");
            assert_eq!(agent("model/mod.rs", text).len(), 1, "{text}");
            assert_eq!(agent("model/service.rs", text).len(), 1, "{text}");
            assert_eq!(agent("reconcile.rs", text), NONE, "{text}");
        }
    }

    #[test]
    fn words_in_comments_and_strings_and_longer_names_are_no_imports() {
        let text = "//! tokio::spawn\nuse tokio_like::x; /* use kube::Api; */ const S: &str = \"aya::Ebpf\"; \
                    fn f(kube: u8) -> u8 { kube }";
        assert_eq!(agent("plan.rs", text), NONE);
    }

    #[test]
    fn an_offence_names_file_line_path_and_reason() {
        assert_eq!(
            agent("datapath/mod.rs", "\n\nuse crate::{maps::Op, model::Service};\n"),
            [
                "lb-userspace/src/datapath/mod.rs:3: names crate::model::Service, but the datapath never sees a Service"
            ]
        );
    }

    #[test]
    fn relative_paths_are_resolved_from_the_module_of_the_file() {
        assert_eq!(agent("datapath/attach.rs", "use super::super::model::Service;").len(), 1);
        assert_eq!(agent("datapath/attach.rs", "use super::model::Link;"), NONE);
        assert_eq!(agent("endpoints.rs", "use super::plan::Op;").len(), 1);
        assert_eq!(agent("endpoints.rs", "mod tests { use super::plan::Op; }"), NONE);
    }

    #[test]
    fn events_end_in_the_store() {
        let text = "use crate::source::{Event, Feed};";
        assert_eq!(agent("model/store.rs", text), NONE);
        assert_eq!(agent("model/service.rs", text).len(), 2);
        assert_eq!(agent("endpoints.rs", text).len(), 2);
    }

    #[test]
    fn only_the_entry_points_name_the_agent() {
        let text = "use crate::agent::Agent;";
        assert_eq!(agent("reconcile.rs", text).len(), 1);
        assert_eq!(agent("lib.rs", "pub use self::agent::Agent;").len(), 1);
        assert_eq!(agent("cli/run.rs", text), NONE);
        assert_eq!(agent("agent.rs", text), NONE);
    }

    #[test]
    fn kubernetes_types_meet_the_model_in_one_file() {
        let text = "use k8s_openapi::api::core::v1::Service; use crate::model::Object;";
        assert_eq!(agent("source/convert.rs", text), NONE);
        assert_eq!(agent("source/cluster.rs", text).len(), 1);
        assert_eq!(agent("why.rs", text).len(), 1);
    }

    #[test]
    fn in_the_programs_a_step_may_not_name_a_hook() {
        let programs = |file, text| offences_of(PROGRAMS, file, text).unwrap();
        assert_eq!(programs("packet.rs", "use crate::nat::dnat;").len(), 1);
        assert_eq!(programs("nat.rs", "use crate::tc::ingress;").len(), 1);
        assert_eq!(programs("tc.rs", "use crate::{nat::dnat, packet::Packet};"), NONE);
    }
}
