use super::*;
use crate::datapath::Decision;

fn decision() -> Decision {
    Decision { used: true, reason: "the kernel has it".to_owned() }
}

/// A machine on which everything is as it should be.
fn good() -> Facts {
    let veth = Link { name: "veth1".into(), kind: Some("veth".into()), ethernet: true, ..Link::default() };
    Facts {
        release: "6.12.0-1-amd64".into(),
        btf: true,
        jit: Some("1".into()),
        bpffs: Ok(true),
        cgroup: Ok("/sys/fs/cgroup".into()),
        capabilities: u64::MAX,
        features: Features {
            tcx: decision(),
            socket_errors: decision(),
            coarse_clock: decision(),
            host_routing: decision(),
        },
        sysctls: vec![("net.ipv4.ip_forward", Some("1".into()))],
        local_ports: Ok(None),
        links: Ok(vec![veth]),
        beside: Vec::new(),
        kube_proxy: Vec::new(),
        other_schemas: Vec::new(),
    }
}

const NET_ADMIN: u64 = 1 << 12;
const SYS_ADMIN: u64 = 1 << 21;
const PERFMON_AND_BPF: u64 = 1 << 38 | 1 << 39;

#[test]
fn nothing_is_said_against_a_good_machine() {
    for finding in findings(&good()) {
        assert_eq!((finding.status, finding.fix.as_ref()), (Level::Ok, None), "{finding:?}");
    }
}

#[test]
fn each_fault_is_one_finding_with_a_fix() {
    type Fault = fn(&mut Facts);
    let rows: [(&str, Level, Fault); 19] = [
        ("kernel", Level::Fail, |it| it.release = "5.4.0".into()),
        ("kernel", Level::Fail, |it| it.release = "nonsense".into()),
        ("BTF", Level::Warn, |it| it.btf = false),
        ("JIT", Level::Warn, |it| it.jit = Some("0".into())),
        ("capabilities", Level::Fail, |it| it.capabilities = 0),
        ("capabilities", Level::Fail, |it| it.capabilities = SYS_ADMIN),
        ("capabilities", Level::Fail, |it| it.capabilities = NET_ADMIN),
        ("capabilities", Level::Warn, |it| it.capabilities = NET_ADMIN | PERFMON_AND_BPF),
        ("TCX", Level::Warn, |it| it.features.tcx.used = false),
        ("BPF file system", Level::Fail, |it| it.bpffs = Err("not one".into())),
        ("cgroup v2", Level::Warn, |it| it.cgroup = Err("none".into())),
        ("sysctl", Level::Fail, |it| it.sysctls[0].1 = Some("0".into())),
        ("local ports", Level::Warn, |it| it.local_ports = Ok(Some("they overlap".into()))),
        ("other proxies", Level::Fail, |it| it.beside.push(Beside { proxy: "Cilium", pin: "/x".into() })),
        ("other proxies", Level::Warn, |it| it.kube_proxy.push("chains".into())),
        ("pins", Level::Warn, |it| it.other_schemas.push("/x/v1".into())),
        ("interfaces", Level::Warn, |it| it.links = Ok(Vec::new())),
        ("interfaces", Level::Fail, |it| it.links = Err("no netlink".into())),
        ("interfaces", Level::Warn, |it| {
            let macvlan =
                Link { name: "m0".into(), kind: Some("macvlan".into()), ethernet: true, ..Link::default() };
            it.links.as_mut().unwrap().push(macvlan);
        }),
    ];
    for (check, level, fault) in rows {
        let mut facts = good();
        fault(&mut facts);
        let bad: Vec<_> =
            findings(&facts).into_iter().filter(|finding| finding.status != Level::Ok).collect();
        assert_eq!(bad.len(), 1, "{check}: {bad:?}");
        assert_eq!((bad[0].check.as_str(), bad[0].status), (check, level), "{bad:?}");
        assert!(bad[0].fix.is_some(), "{bad:?}");
    }
}

#[test]
fn the_agent_refuses_to_run_beside_another_and_says_how_to_go_on() {
    refuse_beside(&[]).unwrap();
    let pin = "/sys/fs/bpf/tc/globals/cali_v4_nat_fe3";
    let error = refuse_beside(&[Beside { proxy: "Calico", pin: pin.into() }]).unwrap_err().to_string();
    assert!(
        error.starts_with("Calico has its eBPF proxy") && error.ends_with(&format!("rm {pin}")),
        "{error}"
    );
}
