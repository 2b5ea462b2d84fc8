//! The addresses of this machine as a source.
//!
//! ```text
//!   news ──something may have changed──► kernel ──────► view ─────► said ──events──►
//!   also a reading now and then          reads all      addresses,  a pure diff
//!                                        anew           primary
//! ```
//!
//! Changes are only a reason to read: what is said is always what the kernel answered to one reading, so no missed or
//! repeated message can leave it wrong.

mod kernel;
mod said;
mod view;

use std::{convert::Infallible, io, time::Duration};

use backon::{BackoffBuilder, ExponentialBuilder};
use tokio::{
    sync::mpsc::{Sender, error::SendError},
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use self::{kernel::Kernel, said::Said};
use super::{Feed, SourceEvent};
use crate::model::Host;

/// When addresses are read.
///
/// A change is said `settle` after its first sign; where that is less than `pause` after the last reading, `pause` after that.
/// The time of a reading comes on top.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// From the first sign of a change to reading: one change is several messages.
    pub settle: Duration,
    /// Between readings at least, so that a flood of changes is few of them.
    pub pause: Duration,
    /// Between readings that nothing has called for: the kernel does not tell of every change that matters.
    pub rescan: Duration,
    /// How long a reading may take.
    pub limit: Duration,
    /// The pauses after failures.
    pub backoff: ExponentialBuilder,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            settle: Duration::from_millis(30),
            pause: Duration::from_millis(250),
            rescan: Duration::from_secs(60),
            limit: Duration::from_secs(10),
            // 1 s, 2 s, 4 s … 30 s, 30 s …
            backoff: ExponentialBuilder::new()
                .with_min_delay(Duration::from_secs(1))
                .with_factor(2.0)
                .with_max_delay(Duration::from_secs(30))
                .without_max_times(),
        }
    }
}

/// Says which addresses this machine has, and every change, until `stop` or until nobody listens. They are those of the
/// network namespace of the thread that polls it.
pub async fn follow(feed: Feed, events: Sender<SourceEvent>, timing: Timing, stop: CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = events.closed() => {}
        // Ends only where nobody listens, which is not an error.
        _ = Following { feed, events: &events, timing, said: Said::default() }.run(Kernel::open) => {}
    }
}

struct Following<'a> {
    feed: Feed,
    events: &'a Sender<SourceEvent>,
    timing: Timing,
    said: Said,
}

impl Following<'_> {
    async fn run(
        mut self,
        mut open: impl FnMut() -> io::Result<Kernel>,
    ) -> Result<Infallible, SendError<SourceEvent>> {
        let mut backoff = self.timing.backoff.build();
        loop {
            let cause = match open() {
                Ok(mut kernel) => loop {
                    match self.read(&mut kernel).await {
                        Ok(host) => self.tell(Ok(host)).await?,
                        Err(cause) => break cause,
                    }
                    backoff = self.timing.backoff.build();
                    if let Err(cause) = self.wait(&mut kernel).await {
                        break cause;
                    }
                },
                Err(cause) => cause,
            };
            self.tell(Err(format!("the addresses of this machine cannot be read: {cause}"))).await?;
            // It has no end.
            sleep(backoff.next().unwrap_or(self.timing.rescan)).await;
        }
    }

    async fn read(&self, kernel: &mut Kernel) -> io::Result<Host> {
        let limit = self.timing.limit;
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {limit:?}"));
        Ok(timeout(limit, kernel.read()).await.map_err(late)??.host())
    }

    /// Waits until it is time for another reading.
    async fn wait(&self, kernel: &mut Kernel) -> io::Result<()> {
        let Timing { settle, pause, rescan, .. } = self.timing;
        let soonest = Instant::now() + pause;
        tokio::select! {
            changed = kernel.changed() => changed?,
            () = sleep(rescan) => return Ok(()),
        }
        let due = soonest.max(Instant::now() + settle);
        let mut time = std::pin::pin!(sleep_until(due));
        loop {
            tokio::select! {
                biased;
                () = &mut time => return Ok(()),
                // What comes until then is in the reading.
                changed = kernel.changed() => changed?,
            }
        }
    }

    async fn tell(&mut self, reading: Result<Host, String>) -> Result<(), SendError<SourceEvent>> {
        for event in self.said.update(reading) {
            self.events.send(SourceEvent { feed: self.feed, event }).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
