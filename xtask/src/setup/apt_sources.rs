//! The package sources of a Debian-like machine, in both formats of sources.list(5).

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};

/// One or several mirrors of binary packages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    /// The mirrors.
    pub(super) uris: Vec<String>,
    /// For example `bookworm`.
    pub(super) suites: Vec<String>,
    /// For example `main`. Empty where a suite is a path.
    pub(super) components: Vec<String>,
    /// The field Signed-By as it is written: key files, fingerprints, or a whole key on many lines.
    pub(super) signed_by: Option<String>,
}

impl Source {
    /// A stanza of a file `*.sources`.
    pub(super) fn to_deb822(&self) -> String {
        let [uris, suites] = [&self.uris, &self.suites].map(|words| words.join(" "));
        let mut stanza = format!("Types: deb\nURIs: {uris}\nSuites: {suites}\n");
        if !self.components.is_empty() {
            stanza += &format!("Components: {}\n", self.components.join(" "));
        }
        if let Some(key) = &self.signed_by {
            stanza += &format!("Signed-By: {key}\n");
        }
        stanza + "\n"
    }
}

/// Reads all sources that apt would read.
pub(super) fn of_this_machine() -> Result<Vec<Source>> {
    let etc = Path::new("/etc/apt");
    // A missing folder is a machine without apt, or with everything in sources.list.
    let mut files: Vec<PathBuf> = fs::read_dir(etc.join("sources.list.d"))
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .collect();
    files.push(etc.join("sources.list"));
    files.sort();
    let mut sources = Vec::new();
    for file in files.iter().filter(|file| file.is_file()) {
        let parse = match file.extension().and_then(|extension| extension.to_str()) {
            Some("list") => parse_list,
            Some("sources") => parse_deb822,
            // apt ignores them too.
            _ => continue,
        };
        let text = fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
        sources.extend(parse(&text));
    }
    if sources.is_empty() {
        bail!("this machine has no package sources in {}", etc.display());
    }
    Ok(sources)
}

/// Parses the format of one line a source: `deb [option=value…] URI suite component…`.
pub(super) fn parse_list(text: &str) -> Vec<Source> {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Source> {
    let line = line.split('#').next()?.trim();
    let rest = line.strip_prefix("deb")?;
    let rest = rest.strip_prefix([' ', '\t'])?.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => ("", rest),
    };
    let mut words = rest.split_whitespace().map(str::to_owned);
    let signed_by = options.split_whitespace().find_map(|option| option.strip_prefix("signed-by="));
    Some(Source {
        uris: vec![words.next()?],
        suites: vec![words.next()?],
        components: words.collect(),
        // Several are separated by a comma here, and by a space in the other format.
        signed_by: signed_by.map(|keys| keys.replace(',', " ")),
    })
}

/// Parses the format of stanzas (deb822(5)).
pub(super) fn parse_deb822(text: &str) -> Vec<Source> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    lines.split(|line| line.trim().is_empty()).filter_map(parse_stanza).collect()
}

fn parse_stanza(lines: &[&str]) -> Option<Source> {
    let field = |wanted: &str| {
        let is_wanted = |line: &&str| {
            line.split_once(':').is_some_and(|(name, _)| name.trim_end().eq_ignore_ascii_case(wanted))
        };
        let start = lines.iter().position(is_wanted)?;
        let (_, first) = lines[start].split_once(':')?;
        let more = lines[start + 1..].iter().take_while(|line| line.starts_with([' ', '\t']));
        Some(more.fold(first.trim().to_owned(), |value, line| value + "\n" + line))
    };
    let words = |name: &str| -> Vec<String> {
        field(name).map(|value| value.split_whitespace().map(str::to_owned).collect()).unwrap_or_default()
    };
    let off = |value: String| ["no", "false", "without", "off", "disable", "0"].contains(&value.trim());
    if !words("Types").iter().any(|kind| kind == "deb") || field("Enabled").is_some_and(off) {
        return None;
    }
    Some(Source {
        uris: words("URIs"),
        suites: words("Suites"),
        components: words("Components"),
        signed_by: field("Signed-By"),
    })
}

/// Another suite on the same mirrors, as far as they can have it: one of security updates on security mirrors, every other
/// one on archives. Nothing where it is among the sources already.
pub(super) fn of_suite(sources: &[Source], suite: &str) -> Vec<Source> {
    let of_security = |suite: &str| suite.contains("security") || suite.ends_with("/updates");
    let can_have_it = |source: &&Source| {
        source.components.iter().any(|component| component == "main")
            && source.suites.iter().any(|other| of_security(other)) == of_security(suite)
    };
    let mut added: Vec<Source> = Vec::new();
    for source in sources.iter().filter(can_have_it) {
        // apt refuses to work when one suite of one mirror is listed twice with different keys.
        let has_it =
            |other: &Source| other.uris == source.uris && other.suites.iter().any(|listed| listed == suite);
        if !sources.iter().chain(&added).any(has_it) {
            let (suites, components) = (vec![suite.to_owned()], vec!["main".to_owned()]);
            added.push(Source { suites, components, ..source.clone() });
        }
    }
    added
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(uris: &[&str], suites: &[&str], components: &[&str], signed_by: Option<&str>) -> Source {
        let [uris, suites, components] =
            [uris, suites, components].map(|words| words.iter().copied().map(str::to_owned).collect());
        Source { uris, suites, components, signed_by: signed_by.map(str::to_owned) }
    }

    #[test]
    fn one_line_sources_are_read_and_comments_and_source_packages_are_not() {
        let text = "\
# deb http://old/debian bullseye main
deb http://mirror/debian bookworm main contrib # the usual
deb-src http://mirror/debian bookworm main
deb\t[ arch=amd64 signed-by=/a.gpg,/b.gpg ]  https://vendor/apt stable stuff
deb [trusted=yes] file:/srv/apt ./
";
        assert_eq!(
            parse_list(text),
            [
                source(&["http://mirror/debian"], &["bookworm"], &["main", "contrib"], None),
                source(&["https://vendor/apt"], &["stable"], &["stuff"], Some("/a.gpg /b.gpg")),
                source(&["file:/srv/apt"], &["./"], &[], None),
            ]
        );
    }

    #[test]
    fn a_line_that_is_cut_short_is_no_source() {
        assert_eq!(
            parse_list("deb\ndeb http://mirror/debian\ndeb [arch=amd64 http://mirror/debian x main\n"),
            []
        );
    }

    #[test]
    fn stanzas_are_read_with_their_continuation_lines() {
        let text = "\
Types: deb deb-src
# snapshot
URIs: http://mirror/debian
 http://other/debian
suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb-src
URIs: http://mirror/debian
Suites: bookworm
Components: main

Enabled: no
Types: deb
URIs: http://mirror/debian
Suites: sid
Components: main
";
        assert_eq!(
            parse_deb822(text),
            [source(
                &["http://mirror/debian", "http://other/debian"],
                &["bookworm", "bookworm-updates"],
                &["main"],
                Some("/usr/share/keyrings/debian-archive-keyring.gpg")
            )]
        );
    }

    #[test]
    fn a_key_inside_a_stanza_survives_being_written_again() {
        let text = "\
Types: deb
URIs: http://mirror/debian
Suites: bookworm
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mQINBGPL0BUBEADmW5NdOOHwPIJlgPu6JDcKw/NZJPR8lsD3K87ZM18gzyQZJD+w
 -----END PGP PUBLIC KEY BLOCK-----
";
        let once = parse_deb822(text);
        assert!(once[0].signed_by.as_ref().is_some_and(|key| key.contains("\n .\n mQINBG")));
        assert_eq!(parse_deb822(&once[0].to_deb822()), once);
    }

    #[test]
    fn backports_are_looked_for_once_on_each_archive_and_not_on_security_mirrors() {
        let sources = parse_list(
            "deb [signed-by=/k.gpg] http://mirror/debian bookworm main contrib\n\
             deb http://mirror/debian-security bookworm-security main\n\
             deb http://mirror/debian-security buster/updates main\n\
             deb http://mirror/debian bookworm-updates main\n\
             deb http://vendor/apt stable stuff\n",
        );
        let backports = of_suite(&sources, "trixie-backports");
        assert_eq!(backports.len(), 1);
        assert_eq!(
            backports[0].to_deb822(),
            "Types: deb\nURIs: http://mirror/debian\nSuites: trixie-backports\nComponents: main\n\
             Signed-By: /k.gpg\n\n"
        );
        assert_eq!(of_suite(&[sources.clone(), backports].concat(), "trixie-backports"), []);
        let security = of_suite(&sources, "bullseye-security");
        let uris: Vec<_> = security.iter().flat_map(|source| &source.uris).collect();
        assert_eq!(uris, ["http://mirror/debian-security"], "once, and not on the archive");
    }
}
