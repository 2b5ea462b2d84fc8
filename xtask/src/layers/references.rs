//! Which paths a Rust file names.

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Every path in `text`, the relative ones from `crate`, each with the line where it ends. `module` is where the file
/// is in its crate, for example `source::kube`, empty for the root.
///
/// It reads tokens, not syntax, so it sees what is inside of macro calls too. A name alone counts only in an
/// import: elsewhere it is a variable.
pub(super) fn references(text: &str, module: &str) -> Result<Vec<(usize, String)>> {
    let tokens: TokenStream = text.parse().map_err(|error| anyhow!("{error}"))?;
    let module = module.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect();
    let mut reader = Reader { module, found: Vec::new() };
    reader.read(tokens, &[], false);
    Ok(reader.found)
}

struct Reader {
    module: Vec<String>,
    found: Vec<(usize, String)>,
}

impl Reader {
    /// Reads one level of brackets. `prefix` and `importing` carry what precedes the braces of an import.
    fn read(&mut self, tokens: TokenStream, prefix: &[String], mut importing: bool) {
        let nested = importing;
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            at += 1;
            match token {
                TokenTree::Ident(word) if word == "use" => importing = true,
                // The new name of an import is nothing that it depends on.
                TokenTree::Ident(word) if word == "as" && importing => at += 1,
                TokenTree::Punct(end) if end.as_char() == ';' => importing = nested,
                TokenTree::Ident(word) if word == "mod" => {
                    if let (Some(TokenTree::Ident(name)), Some(TokenTree::Group(body))) =
                        (tokens.get(at), tokens.get(at + 1))
                    {
                        self.module.push(name.to_string());
                        self.read(body.stream(), &[], false);
                        self.module.pop();
                        at += 2;
                    }
                }
                TokenTree::Ident(first) => {
                    let mut path = prefix.to_vec();
                    path.push(first.to_string());
                    let mut line = first.span().start().line;
                    let mut whole = true;
                    while is_separator(tokens.get(at), tokens.get(at + 1)) {
                        match tokens.get(at + 2) {
                            Some(TokenTree::Ident(next)) => {
                                path.push(next.to_string());
                                line = next.span().start().line;
                                at += 3;
                            }
                            Some(TokenTree::Group(list)) if list.delimiter() == Delimiter::Brace => {
                                self.read(list.stream(), &path, importing);
                                whole = false;
                                at += 3;
                            }
                            // A glob, or generic arguments.
                            _ => {
                                at += 2;
                                break;
                            }
                        }
                    }
                    if whole && (importing || path.len() > 1) {
                        let path = self.resolve(&path).join("::");
                        self.found.push((line, path));
                    }
                }
                TokenTree::Group(group) => self.read(group.stream(), prefix, importing),
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }

    /// Turns `self` and `super` into the path from the crate.
    fn resolve(&self, path: &[String]) -> Vec<String> {
        let ups = path.iter().take_while(|name| *name == "super").count();
        let relative = ups > 0 || path.first().is_some_and(|name| name == "self");
        if !relative {
            return path.to_vec();
        }
        let depth = self.module.len().saturating_sub(ups);
        let rest = path.iter().skip(ups).filter(|name| *name != "self");
        ["crate".to_owned()].iter().chain(&self.module[..depth]).chain(rest).cloned().collect()
    }
}

fn is_separator(first: Option<&TokenTree>, second: Option<&TokenTree>) -> bool {
    let is_colon =
        |token: Option<&TokenTree>| matches!(token, Some(TokenTree::Punct(p)) if p.as_char() == ':');
    is_colon(first) && is_colon(second)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        let found = references(text, "source::kube").unwrap();
        found.into_iter().map(|(_, path)| path).collect()
    }

    #[test]
    fn lists_of_an_import_are_spelt_out() {
        assert_eq!(paths("use a::{b, c::{self, d}, e::*};"), ["a::b", "a::c::self", "a::c::d", "a::e"]);
        assert_eq!(paths("use {a, crate::b as c};"), ["a", "crate::b"]);
    }

    #[test]
    fn code_names_paths_and_variables_do_not_count() {
        assert_eq!(paths("fn f(x: a::B) -> u8 { c::<u8>(x); d::e::<u8>(y) }"), ["a::B", "d::e"]);
        assert_eq!(paths("fn f() { use a::b; c }"), ["a::b"]);
        assert_eq!(paths("m!(\"{}\", a::b)"), ["a::b"]);
    }

    #[test]
    fn relative_paths_start_at_the_module_that_they_stand_in() {
        assert_eq!(
            paths("use super::x; use self::y; use super::super::z;"),
            ["crate::source::x", "crate::source::kube::y", "crate::z"]
        );
        assert_eq!(
            paths("mod tests { use super::x; } use super::x;"),
            ["crate::source::kube::x", "crate::source::x"]
        );
    }

    #[test]
    fn a_file_that_does_not_lex_is_an_error() {
        assert!(references("fn f( {", "").is_err());
    }
}
