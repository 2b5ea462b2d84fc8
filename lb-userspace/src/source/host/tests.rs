//! The kernel of the machine that runs the test, whatever addresses it has.

use tokio::sync::mpsc;

use super::*;
use crate::{model::Object, source::Event};

const FEED: Feed = Feed(3);

/// As [`follow`], but the kernel can be opened at the attempts after these failures only.
async fn follow_after(failures: usize, events: Sender<SourceEvent>) {
    let mut attempts = 0;
    let open = || {
        attempts += 1;
        if attempts <= failures { Err(io::Error::from_raw_os_error(libc::EMFILE)) } else { Kernel::open() }
    };
    let following =
        Following { feed: FEED, events: &events, timing: Timing::default(), said: Said::default() };
    let _ = following.run(open).await;
}

#[tokio::test(start_paused = true)]
async fn a_kernel_that_cannot_be_asked_is_told_once_and_asked_again_later_and_later() {
    let (sender, mut events) = mpsc::channel(16);
    let started = Instant::now();
    let following = tokio::spawn(async move { follow_after(3, sender).await });
    let mut said = Vec::new();
    while !matches!(said.last(), Some(Event::Recovered)) {
        let SourceEvent { feed, event } = events.recv().await.unwrap();
        assert_eq!(feed, FEED);
        said.push(event);
    }
    following.abort();
    let sentence = "the addresses of this machine cannot be read: Too many open files (os error 24)";
    assert_eq!(said[..2], [Event::Failing(sentence.to_owned()), Event::ListStarted]);
    assert!(matches!(&said[2], Event::Apply(Object::Host(_))), "{said:?}");
    assert_eq!(said[3..], [Event::ListComplete, Event::Recovered]);
    // 1 s, 2 s and 4 s; the rest is the kernel's time, which the clock does not see.
    assert_eq!(started.elapsed().as_secs(), 7);
}

#[tokio::test(start_paused = true)]
async fn it_ends_with_the_agent_or_when_nobody_listens() {
    let stop = CancellationToken::new();
    let (sender, mut events) = mpsc::channel(16);
    let following = tokio::spawn(follow(FEED, sender, Timing::default(), stop.clone()));
    assert_eq!(events.recv().await, Some(SourceEvent { feed: FEED, event: Event::ListStarted }));
    stop.cancel();
    following.await.unwrap();

    let (sender, events) = mpsc::channel(16);
    drop(events);
    follow(FEED, sender, Timing::default(), CancellationToken::new()).await;
}

#[test]
fn the_pauses_after_failures_have_no_end() {
    let pauses: Vec<u64> = Timing::default().backoff.build().take(8).map(|pause| pause.as_secs()).collect();
    assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30, 30]);
    assert_eq!(Timing::default().backoff.build().take(1000).count(), 1000);
}
