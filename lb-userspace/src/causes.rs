//! Errors of libraries as one sentence.

use std::error::Error;

/// The error and everything that it names as its cause. Errors of this crate hold such sentences and no further source,
/// so each is told once, however they are printed.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut sentence = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        // Some errors repeat their cause in their own text.
        if !sentence.ends_with(&text) {
            sentence.push_str(": ");
            sentence.push_str(&text);
        }
        cause = error.source();
    }
    sentence
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the map cannot be made")]
    struct Outer(#[source] std::io::Error);

    #[derive(Debug, thiserror::Error)]
    #[error("the map cannot be made: {0}")]
    struct Telling(#[source] std::io::Error);

    #[test]
    fn each_cause_is_told_once() {
        const WANT: &str = "the map cannot be made: no room";
        assert_eq!(with_causes(&Outer(std::io::Error::other("no room"))), WANT);
        assert_eq!(with_causes(&Telling(std::io::Error::other("no room"))), WANT);
    }
}
