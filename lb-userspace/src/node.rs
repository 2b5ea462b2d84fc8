//! Which node this is.

use std::env;

use anyhow::{Context, Result};

/// The node's name, as in `nodeName` of endpoints: what is given, else what is in the variable `NODE_NAME`, else the host
/// name.
/// Like kube-proxy's, it is trimmed and in lower case.
///
/// # Errors
/// Where there is none of them.
pub fn name(given: Option<&str>) -> Result<String> {
    let from_host = || {
        nix::unistd::gethostname()
            .context("cannot read the host name")
            .map(|name| name.to_string_lossy().into_owned())
    };
    let name =
        match given.map(str::to_owned).or_else(|| env::var("NODE_NAME").ok().filter(|name| !name.is_empty()))
        {
            Some(name) => name,
            None => from_host()?,
        };
    let name = name.trim().to_lowercase();
    anyhow::ensure!(!name.is_empty(), "the name of the node is empty; give it with --hostname-override");
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_given_name_is_trimmed_and_in_lower_case() {
        assert_eq!(name(Some(" Node-A ")).unwrap(), "node-a");
        assert!(name(Some(" ")).is_err());
        assert!(!name(None).unwrap().is_empty());
    }
}
