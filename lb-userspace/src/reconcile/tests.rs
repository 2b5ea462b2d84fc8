use tokio::{task::JoinHandle, time::timeout};

use super::*;
use crate::{
    desired::Identity,
    maps::{Op, fake::FakeMaps},
    source::Event,
    testing::{BACKEND_1, BACKEND_2, NODE, VIP, apply, delete, on, web, web_slice},
};

/// Longer than any backoff, in paused time.
const DEADLINE: std::time::Duration = std::time::Duration::from_secs(600);

struct Running {
    events: mpsc::Sender<SourceEvent>,
    requests: mpsc::Sender<Request>,
    status: watch::Receiver<Status>,
    maps: FakeMaps,
    task: JoinHandle<()>,
}

impl Running {
    fn start(maps: FakeMaps) -> Self {
        let identity = Identity::of(NODE);
        let config = Config { identity, feeds: 1, optional: Vec::new(), remembered: Vec::new() };
        let engine = Engine::start(Box::new(maps.clone()), config).unwrap();
        let (events, from_sources) = mpsc::channel(16);
        let (requests, from_users) = mpsc::channel(16);
        let (tell, status) = watch::channel(Status::default());
        let (tell_checks, _) = watch::channel(HealthChecks::new());
        let task = tokio::spawn(run(engine, from_sources, from_users, tell, tell_checks));
        Self { events, requests, status, maps, task }
    }

    async fn say(&self, event: SourceEvent) {
        self.events.send(event).await.unwrap();
    }

    /// Waits until the status is so.
    async fn until(&mut self, is_so: impl FnMut(&Status) -> bool) {
        let status = timeout(DEADLINE, self.status.wait_for(is_so)).await;
        let last = status.map(|status| status.unwrap().clone());
        assert!(last.is_ok(), "{:?}", self.status.borrow());
    }

    async fn render(&self) -> Document {
        let (answer, answered) = oneshot::channel();
        self.requests.send(Request::Render(answer)).await.unwrap();
        answered.await.unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn events_end_in_the_maps_in_spite_of_failures_and_the_status_tells() {
    let maps = FakeMaps::new(7);
    maps.fail(0.5);
    let mut agent = Running::start(maps);
    agent.say(apply(0, web())).await;
    agent.say(apply(0, web_slice(&[BACKEND_1, BACKEND_2]))).await;
    agent.say(on(0, Event::ListComplete)).await;
    agent
        .until(|status| status.complete && status.generation > 0 && status.applied == status.generation)
        .await;
    let holds = agent.maps.holds();
    let frontends = holds.services.iter().filter(|(key, _)| !key.is_whole());
    assert_eq!(frontends.map(|(_, value)| value.set.count).collect::<Vec<_>>(), [2]);
    let status = agent.status.borrow().clone();
    assert_eq!((status.services, status.frontends, status.programmable, status.programmed), (1, 1, 1, 1));
    assert_eq!(status.feeds, [FeedStatus { synced: true, failing: None }]);
    assert_eq!(status.operations, u64::try_from(agent.maps.take_log().len()).unwrap());
}

#[tokio::test(start_paused = true)]
async fn it_answers_what_is_desired_and_clears_the_flag_when_told() {
    let maps = FakeMaps::new(0);
    maps.fail(0.0);
    let mut agent = Running::start(maps);
    agent.say(on(0, Event::ListComplete)).await;
    agent.say(apply(0, web())).await;
    agent.until(|status| status.programmed == 1).await;
    let document = agent.render().await;
    assert_eq!(document.node, NODE);
    assert_eq!(document.frontends[0].address.to_string(), VIP);

    agent.say(delete(0, web())).await;
    agent.until(|status| status.removals == 1).await;
    assert_ne!(agent.maps.holds().settings.flags, 0);
    let (answer, answered) = oneshot::channel();
    agent.requests.send(Request::ClearOrphanFlows { removals: 1, answer }).await.unwrap();
    assert!(answered.await.unwrap().unwrap());
    assert_eq!(agent.maps.holds().settings.flags, 0);
}

#[tokio::test(start_paused = true)]
async fn without_sources_it_ends_and_leaves_the_maps_as_they_are() {
    let maps = FakeMaps::new(0);
    maps.fail(0.0);
    let mut agent = Running::start(maps);
    agent.say(on(0, Event::ListComplete)).await;
    agent.say(apply(0, web())).await;
    agent.until(|status| status.programmed == 1).await;
    let Running { events, maps, task, .. } = agent;
    maps.take_log();
    drop(events);
    timeout(DEADLINE, task).await.unwrap().unwrap();
    assert_eq!(maps.take_log(), Vec::<Op>::new());
    assert_eq!(maps.holds().services.len(), 2, "the frontend and its address as a whole");
}
