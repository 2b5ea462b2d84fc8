//! The ways in which a server fails.

use std::time::{Duration, SystemTime};

use super::State;

/// What a request is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// All objects, or a page of them.
    List,
    /// Changes as they come.
    Watch,
    /// One object.
    Get,
}

impl Verb {
    /// As permissions name it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Watch => "watch",
            Self::Get => "get",
        }
    }
}

/// What becomes of a request.
#[derive(Clone, Debug)]
pub enum Fault {
    /// None, so that a rule after this one befalls only later requests.
    None,
    /// 403: this user may not.
    Forbidden {
        /// Name of the user.
        user: &'static str,
    },
    /// 404, as of a server that does not know the resource.
    NotServed,
    /// 410 as the code of the answer.
    Gone,
    /// 410 as an event, in a watch that has been opened well.
    GoneEvent,
    /// 429 with a `Retry-After`.
    TooManyRequests {
        /// When to come back.
        retry_after: RetryAfter,
    },
    /// 500.
    InternalError,
    /// Not answered until the faults end.
    Hold,
    /// An answer that stops half way and does not end, as behind a balancer that has lost the server.
    Stall,
    /// A watch that is open and says nothing, as behind a balancer that has lost the server. Not even its time runs out.
    Silent,
    /// A watch that is ended without an error after this time.
    CloseAfter(Duration),
}

/// The two forms of the header `Retry-After`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryAfter {
    /// In so many seconds.
    Seconds(u64),
    /// At a time, in whole seconds.
    At(SystemTime),
}

/// How often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// So many requests.
    Count(usize),
    /// Until the faults end.
    Always,
}

/// What becomes of the watches that are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The server ends them, as it does when their time is over.
    Close,
    /// The connection is reset, half a line into a bookmark.
    ResetMidLine,
    /// 410 as an event, then the end.
    GoneEvent,
}

/// A fault and the requests that it befalls.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) resource: String,
    pub(super) verb: Verb,
    pub(super) fault: Fault,
    pub(super) times: Times,
}

impl State {
    /// The fault that befalls a request, which uses it up.
    pub(super) fn next_fault(&mut self, resource: &str, verb: Verb) -> Option<Fault> {
        let rule = self
            .rules
            .iter_mut()
            .find(|rule| rule.resource == resource && rule.verb == verb && rule.times != Times::Count(0))?;
        if let Times::Count(left) = &mut rule.times {
            *left -= 1;
        }
        Some(rule.fault.clone())
    }
}
