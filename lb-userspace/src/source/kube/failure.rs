//! What went wrong with a list or a watch, what it takes to go on, and how to say it.

use std::{error::Error as _, time::Duration};

use kube::{core::Status, runtime::watcher};

/// What an API server answers to a path of a group that it does not have.
const NO_SUCH_PATH: &str = "404 page not found";

/// Why nothing more comes.
#[derive(Debug)]
pub(super) enum Failure {
    /// The watcher says so.
    Watcher(watcher::Error),
    /// A page of the list has taken this long.
    NoAnswer(Duration),
    /// The watcher has ended, which it does not do by itself.
    Ended,
}

/// What it takes to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// Nothing: the watcher tries again from where it was.
    Retry,
    /// A new watcher.
    Restart,
    /// A new list, as the server no longer has the versions after the last one seen. It makes up for what was missed,
    /// so nothing is failing.
    List,
}

impl Failure {
    /// What this one takes.
    pub(super) fn remedy(&self) -> Remedy {
        use watcher::Error::{WatchError, WatchStartFailed};
        match self {
            // Where 410 is the answer to a watch, and not an event in it, the watcher would ask for the same version
            // for ever.
            Self::Watcher(WatchError(status)) if status.code == 410 => Remedy::List,
            Self::Watcher(WatchStartFailed(kube::Error::Api(status))) if status.code == 410 => Remedy::List,
            // Whether the server has the resource at all is for a list to say.
            Self::Watcher(WatchStartFailed(kube::Error::Api(status))) if status.code == 404 => {
                Remedy::Restart
            }
            Self::Watcher(_) => Remedy::Retry,
            Self::NoAnswer(_) | Self::Ended => Remedy::Restart,
        }
    }

    /// Whether the server itself says that it does not have the resource: by a Status, or, where it has not even the group, by
    /// the text of Go's HTTP library. The page of a proxy in between says nothing.
    pub(super) fn says_not_served(&self) -> bool {
        use watcher::Error::InitialListFailed;
        matches!(
            self,
            Self::Watcher(InitialListFailed(kube::Error::Api(status)))
                if status.code == 404
                    && (status.reason == "NotFound" || status.message.trim() == NO_SUCH_PATH)
        )
    }

    /// Names the resource, the server and the cause.
    pub(super) fn sentence(&self, resource: &str, address: &str) -> String {
        use watcher::Error;
        let (verb, cause) = match self {
            Self::Watcher(Error::InitialListFailed(error)) => ("list", cause(error)),
            Self::Watcher(Error::WatchStartFailed(error) | Error::WatchFailed(error)) => {
                ("watch", cause(error))
            }
            Self::Watcher(Error::WatchError(status)) => ("watch", told(status)),
            Self::Watcher(Error::NoResourceVersion) => {
                ("watch", "an object came without a resourceVersion".into())
            }
            Self::NoAnswer(limit) => ("list", format!("no answer within {} s", limit.as_secs_f32())),
            Self::Ended => ("watch", "the watcher has ended".into()),
        };
        format!("cannot {verb} {resource} at {address}: {cause}")
    }
}

fn cause(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        return told(status);
    }
    // The outermost error says only in which layer it happened.
    let mut parts: Vec<String> = Vec::new();
    let mut next = error.source();
    while let Some(error) = next {
        let part = error.to_string();
        // Some errors repeat the one below them.
        if !parts.last().is_some_and(|above| above.ends_with(&part)) {
            parts.push(part);
        }
        next = error.source();
    }
    if parts.is_empty() { error.to_string() } else { parts.join(": ") }
}

/// What the server itself said, in one line: a proxy in between may answer with a page.
fn told(status: &Status) -> String {
    const ENOUGH: usize = 300;
    let message = status.message.split_whitespace().collect::<Vec<_>>().join(" ");
    let end = message.char_indices().nth(ENOUGH).map_or(message.len(), |(end, _)| end);
    match &message[..end] {
        "" => format!("the server answers with {}", status.code),
        message => format!("{message} ({})", status.code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_server_itself_can_say_that_it_does_not_have_a_resource() {
        type Of = fn(kube::Error) -> watcher::Error;
        let list: Of = watcher::Error::InitialListFailed;
        let watch: Of = watcher::Error::WatchStartFailed;
        let told = "the message";
        for (of, code, reason, message, not_served, remedy) in [
            (list, 404, "NotFound", told, true, Remedy::Retry),
            // As the client makes of an answer that is no Status.
            (list, 404, "Failed to parse error data", "<html>", false, Remedy::Retry),
            (list, 404, "Failed to parse error data", "404 page not found\n", true, Remedy::Retry),
            (list, 403, "Forbidden", told, false, Remedy::Retry),
            // A list has to say it.
            (watch, 404, "NotFound", told, false, Remedy::Restart),
            (watch, 410, "Expired", told, false, Remedy::List),
        ] {
            let status = Status::failure(message, reason).with_code(code);
            let failure = Failure::Watcher(of(kube::Error::Api(status.boxed())));
            assert_eq!((failure.says_not_served(), failure.remedy()), (not_served, remedy), "{failure:?}");
        }
    }
}
