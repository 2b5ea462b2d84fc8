//! Real files and a real inotify. The rescan is an hour away unless a test is about it, so what is seen was watched.

use std::{collections::BTreeSet, fs, io::Write, os::unix::fs::symlink};

use tempfile::TempDir;
use tokio::{
    sync::mpsc::{self, Receiver},
    task::JoinHandle,
    time::timeout,
};

use super::*;
use crate::{model::Object, source::Event};

const DEADLINE: Duration = Duration::from_secs(20);
const SETTLE: Duration = Duration::from_millis(5);
const NEVER: Duration = Duration::from_secs(3600);

/// A listener that believes the events.
struct Listener {
    events: Receiver<SourceEvent>,
    following: JoinHandle<()>,
    stop: CancellationToken,
    /// Name and cluster IP of each Service.
    services: BTreeSet<(String, String)>,
    complete: bool,
    failing: Option<String>,
    warnings: Vec<Warning>,
    /// Everything that was said, in short.
    log: Vec<String>,
}

impl Listener {
    fn follow(path: &Path) -> Self {
        Self::follow_with(path, NEVER)
    }

    fn follow_with(path: &Path, rescan: Duration) -> Self {
        let (sender, events) = mpsc::channel(64);
        let stop = CancellationToken::new();
        let timing = Timing { settle: SETTLE, rescan };
        let following = tokio::spawn(follow(path.to_owned(), Feed(0), sender, timing, stop.clone()));
        Self {
            events,
            following,
            stop,
            services: BTreeSet::new(),
            complete: false,
            failing: None,
            warnings: Vec::new(),
            log: Vec::new(),
        }
    }

    async fn until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        let waited = timeout(DEADLINE, async {
            while !condition(self) {
                let said = self.events.recv().await.expect("the source goes on");
                self.believe(said.event);
            }
        });
        if waited.await.is_err() {
            panic!(
                "not {what}: {:?}, complete {}, failing {:?}, log {:?}",
                self.services, self.complete, self.failing, self.log
            );
        }
    }

    async fn until_serving(&mut self, services: &[(&str, &str)]) {
        let want = services.iter().map(|(name, ip)| ((*name).to_owned(), (*ip).to_owned())).collect();
        self.until(&format!("serving {want:?}"), |listener| listener.complete && listener.services == want)
            .await;
    }

    async fn until_failing(&mut self, sentence: &str) {
        self.until(&format!("failing with {sentence:?}"), |listener| {
            listener.failing.as_ref().is_some_and(|failing| failing.contains(sentence))
        })
        .await;
    }

    fn believe(&mut self, event: Event) {
        let name = |key: &str| key.trim_start_matches("default/").to_owned();
        match event {
            Event::ListStarted => {
                self.services.clear();
                self.complete = false;
                self.log.push("list".into());
            }
            Event::ListComplete => {
                self.complete = true;
                self.log.push("complete".into());
            }
            Event::Apply(Object::Service(service)) => {
                let name = name(&service.key.to_string());
                let ip = service.cluster_ips[0].to_string();
                self.services.retain(|(known, _)| *known != name);
                self.log.push(format!("{name} {ip}"));
                self.services.insert((name, ip));
            }
            Event::Apply(other) => panic!("{other:?}"),
            Event::Delete(object) => {
                let name = name(&object.key.to_string());
                self.services.retain(|(known, _)| *known != name);
                self.log.push(format!("{name} gone"));
            }
            Event::Together(events) => events.into_iter().for_each(|event| self.believe(event)),
            Event::Warnings(warnings) => self.warnings = warnings,
            Event::Failing(sentence) => {
                self.log.push("failing".into());
                self.failing = Some(sentence);
            }
            Event::Recovered => {
                self.log.push("recovered".into());
                self.failing = None;
            }
        }
    }

    /// What was said since the last time, except warnings.
    fn said(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }
}

fn service(name: &str, ip: &str) -> String {
    format!("---\napiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\nspec: {{clusterIP: {ip}}}\n")
}

/// As most editors and all careful programs save: written beside it, then moved over it.
fn replace(path: &Path, text: &str) {
    let beside = path.with_file_name(".saving");
    fs::write(&beside, text).expect("written");
    fs::rename(&beside, path).expect("renamed");
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

#[tokio::test]
async fn after_the_first_list_only_differences_are_said() {
    let folder = folder();
    fs::write(folder.path().join("a.yaml"), service("web", "10.96.0.50") + &service("dns", "10.96.0.53"))
        .expect("written");
    fs::write(
        folder.path().join("b.json"),
        r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"json"},"spec":{"clusterIP":"10.96.0.1"}}"#,
    )
    .expect("written");
    for ignored in [".hidden.yaml", "a.yaml~", "notes.txt", "a.yaml.swp"] {
        fs::write(folder.path().join(ignored), service("ignored", "10.96.9.9")).expect("written");
    }
    fs::create_dir(folder.path().join("below.yaml")).expect("made");
    let mut listener = Listener::follow(folder.path());
    listener.until_serving(&[("dns", "10.96.0.53"), ("json", "10.96.0.1"), ("web", "10.96.0.50")]).await;
    assert_eq!(listener.said(), ["list", "dns 10.96.0.53", "json 10.96.0.1", "web 10.96.0.50", "complete"]);

    replace(&folder.path().join("a.yaml"), &(service("web", "10.96.0.51") + &service("dns", "10.96.0.53")));
    listener.until_serving(&[("dns", "10.96.0.53"), ("json", "10.96.0.1"), ("web", "10.96.0.51")]).await;
    fs::write(folder.path().join("c.yml"), service("new", "10.96.0.2")).expect("written");
    listener.until("serving new", |listener| listener.services.len() == 4).await;
    fs::remove_file(folder.path().join("a.yaml")).expect("removed");
    listener.until_serving(&[("json", "10.96.0.1"), ("new", "10.96.0.2")]).await;
    assert_eq!(listener.said(), ["web 10.96.0.51", "new 10.96.0.2", "dns gone", "web gone"]);
}

#[tokio::test]
async fn a_broken_file_is_reported_and_keeps_what_it_held() {
    let folder = folder();
    let path = folder.path().join("web.yaml");
    fs::write(&path, service("web", "10.96.0.50") + &service("dns", "10.96.0.53")).expect("written");
    let mut listener = Listener::follow(folder.path());
    listener.until_serving(&[("dns", "10.96.0.53"), ("web", "10.96.0.50")]).await;

    fs::write(&path, service("web", "10.96.0.51") + &service("dns", "[10.96.0.53")).expect("written");
    listener.until_failing("web.yaml document 2, Service dns: mismatched bracket").await;
    let error = listener.failing.clone().expect("failing");
    assert!(listener.warnings.iter().any(|warning| warning.message == error), "{:?}", listener.warnings);
    listener.said();

    fs::write(&path, service("web", "10.96.0.51") + &service("dns", "10.96.0.53")).expect("written");
    listener.until("well", |listener| listener.failing.is_none()).await;
    assert_eq!(listener.said(), ["web 10.96.0.51", "recovered"]);
    assert_eq!(listener.warnings, []);
}

#[tokio::test]
async fn a_file_that_is_still_being_written_is_left_as_it_was() {
    let folder = folder();
    let (slow, other) = (folder.path().join("slow.yaml"), folder.path().join("other.yaml"));
    fs::write(&slow, service("slow", "10.96.0.1")).expect("written");
    fs::write(&other, service("other", "10.96.0.2")).expect("written");
    let mut listener = Listener::follow(folder.path());
    listener.until_serving(&[("other", "10.96.0.2"), ("slow", "10.96.0.1")]).await;

    // Emptied and half way: well formed at each point.
    let mut writer = fs::File::create(&slow).expect("opened");
    writer.write_all(service("first", "10.96.0.8").as_bytes()).expect("written");
    fs::write(&other, service("other", "10.96.0.3")).expect("written");
    listener.until_serving(&[("other", "10.96.0.3"), ("slow", "10.96.0.1")]).await;

    writer.write_all(service("second", "10.96.0.9").as_bytes()).expect("written");
    drop(writer);
    let done = [("first", "10.96.0.8"), ("other", "10.96.0.3"), ("second", "10.96.0.9")];
    listener.until_serving(&done).await;
}

#[tokio::test]
async fn a_folder_that_is_gone_keeps_its_objects_and_is_followed_again_when_it_is_back() {
    let above = folder();
    let (path, away) = (above.path().join("manifests"), above.path().join("away"));
    fs::create_dir(&path).expect("made");
    fs::write(path.join("web.yaml"), service("web", "10.96.0.50")).expect("written");
    let mut listener = Listener::follow(&path);
    listener.until_serving(&[("web", "10.96.0.50")]).await;
    listener.said();

    for (round, ip) in ["10.96.0.51", "10.96.0.52", "10.96.0.53"].into_iter().enumerate() {
        fs::rename(&path, &away).expect("moved away");
        listener.until_failing("cannot read").await;
        assert_eq!(listener.said(), ["failing"], "round {round}");
        fs::remove_dir_all(&away).expect("removed");
        fs::create_dir(&path).expect("made");
        replace(&path.join("web.yaml"), &service("web", ip));
        listener.until_serving(&[("web", ip)]).await;
        listener.until("well", |listener| listener.failing.is_none()).await;
        // The folder may have been seen while it was still empty.
        listener.said();
        fs::write(path.join("later.yaml"), service("later", ip)).expect("written");
        listener.until_serving(&[("later", ip), ("web", ip)]).await;
        fs::remove_file(path.join("later.yaml")).expect("removed");
        listener.until_serving(&[("web", ip)]).await;
        listener.said();
    }
}

#[tokio::test]
async fn the_links_of_a_mounted_config_map_are_followed() {
    for (round, name) in [".", "web.yaml"].into_iter().enumerate() {
        let folder = folder();
        let version = |version: &str, ip: &str| {
            fs::create_dir(folder.path().join(version)).expect("made");
            fs::write(folder.path().join(version).join("web.yaml"), service("web", ip)).expect("written");
            symlink(version, folder.path().join("..data_tmp")).expect("linked");
            fs::rename(folder.path().join("..data_tmp"), folder.path().join("..data")).expect("swapped");
        };
        version("..1", "10.96.0.50");
        symlink("..data/web.yaml", folder.path().join("web.yaml")).expect("linked");
        let mut listener = Listener::follow(&folder.path().join(name));
        listener.until_serving(&[("web", "10.96.0.50")]).await;
        listener.said();

        version("..2", "10.96.0.51");
        fs::remove_dir_all(folder.path().join("..1")).expect("removed");
        listener.until_serving(&[("web", "10.96.0.51")]).await;
        assert_eq!(listener.said(), ["web 10.96.0.51"], "round {round}");
    }
}

#[tokio::test]
async fn a_link_to_a_folder_may_be_moved_to_another_one() {
    let above = folder();
    let path = above.path().join("current");
    let release = |release: &str, ip: &str| {
        fs::create_dir(above.path().join(release)).expect("made");
        fs::write(above.path().join(release).join("web.yaml"), service("web", ip)).expect("written");
        symlink(release, above.path().join("next")).expect("linked");
        fs::rename(above.path().join("next"), &path).expect("swapped");
    };
    release("1", "10.96.0.50");
    let mut listener = Listener::follow(&path);
    listener.until_serving(&[("web", "10.96.0.50")]).await;
    release("2", "10.96.0.51");
    listener.until_serving(&[("web", "10.96.0.51")]).await;
    replace(&path.join("web.yaml"), &service("web", "10.96.0.52"));
    listener.until_serving(&[("web", "10.96.0.52")]).await;
}

#[tokio::test]
async fn a_single_file_may_be_replaced_deleted_and_made_again() {
    let folder = folder();
    let path = folder.path().join("services");
    fs::write(&path, service("web", "10.96.0.50")).expect("written");
    let mut listener = Listener::follow(&path);
    listener.until_serving(&[("web", "10.96.0.50")]).await;
    replace(&path, &service("web", "10.96.0.51"));
    listener.until_serving(&[("web", "10.96.0.51")]).await;
    fs::remove_file(&path).expect("removed");
    listener.until_serving(&[]).await;
    listener.until("warned", |listener| !listener.warnings.is_empty()).await;
    assert_eq!(listener.warnings[0].message, "the file is gone, and its objects with it");
    fs::write(&path, service("web", "10.96.0.52")).expect("written");
    listener.until_serving(&[("web", "10.96.0.52")]).await;
    assert_eq!(listener.failing, None);
}

#[tokio::test]
async fn a_path_that_is_missing_at_the_start_fails_until_it_is_there() {
    let above = folder();
    let path = above.path().join("not/yet/here");
    let mut listener = Listener::follow(&path);
    listener.until_failing("not/yet/here: No such file or directory").await;
    assert_eq!(listener.said(), ["failing"]);
    fs::create_dir_all(&path).expect("made");
    listener.until("listed", |listener| listener.complete && listener.failing.is_none()).await;
    assert_eq!(listener.said(), ["list", "complete", "recovered"]);
    fs::write(path.join("web.yaml"), service("web", "10.96.0.50")).expect("written");
    listener.until_serving(&[("web", "10.96.0.50")]).await;
}

#[tokio::test]
async fn a_file_that_was_never_whole_keeps_the_first_list_incomplete() {
    let folder = folder();
    let (broken, good) = (folder.path().join("broken.yaml"), folder.path().join("good.yaml"));
    fs::write(&broken, "kind: [").expect("written");
    fs::write(&good, service("web", "10.96.0.50")).expect("written");
    let mut listener = Listener::follow(folder.path());
    listener.until_failing("broken.yaml document 1").await;
    assert_eq!(listener.said(), ["list", "web 10.96.0.50", "failing"]);
    fs::write(&broken, service("mended", "10.96.0.1")).expect("written");
    listener.until_serving(&[("mended", "10.96.0.1"), ("web", "10.96.0.50")]).await;
    // Now that all was whole once, a new broken file is that file's trouble only.
    fs::write(folder.path().join("new.yaml"), "kind: [").expect("written");
    listener.until_failing("new.yaml document 1").await;
    fs::remove_file(&good).expect("removed");
    listener.until_serving(&[("mended", "10.96.0.1")]).await;
}

#[tokio::test]
async fn the_definition_that_lost_comes_back_when_the_winner_is_deleted() {
    let folder = folder();
    let (a, b) = (folder.path().join("a.yaml"), folder.path().join("b.yaml"));
    fs::write(&a, service("web", "10.96.0.50")).expect("written");
    fs::write(&b, service("web", "10.96.0.51")).expect("written");
    let mut listener = Listener::follow(folder.path());
    listener.until_serving(&[("web", "10.96.0.51")]).await;
    listener.until("warned", |listener| listener.warnings.len() == 1).await;
    let message =
        format!("defined in {} document 1 and again in {} document 1, which wins", a.display(), b.display());
    assert_eq!(listener.warnings[0].message, message);
    fs::remove_file(&b).expect("removed");
    listener.until_serving(&[("web", "10.96.0.50")]).await;
}

#[tokio::test]
async fn what_cannot_be_watched_is_found_by_looking() {
    let (folder, elsewhere) = (folder(), folder());
    let target = elsewhere.path().join("target");
    fs::write(&target, service("web", "10.96.0.50")).expect("written");
    symlink(&target, folder.path().join("web.yaml")).expect("linked");
    let mut listener = Listener::follow_with(folder.path(), Duration::from_millis(20));
    listener.until_serving(&[("web", "10.96.0.50")]).await;
    replace(&target, &service("web", "10.96.0.51"));
    listener.until_serving(&[("web", "10.96.0.51")]).await;
    // A link to nothing is an error, not a deletion.
    fs::remove_file(&target).expect("removed");
    listener.until_failing("web.yaml: No such file or directory").await;
    assert_eq!(listener.services.len(), 1);
}

#[tokio::test]
async fn it_ends_when_it_is_stopped_or_nobody_listens() {
    let folder = folder();
    let mut listener = Listener::follow(folder.path());
    listener.until_serving(&[]).await;
    listener.stop.cancel();
    timeout(DEADLINE, listener.following).await.expect("ends").expect("no panic");

    let mut listener = Listener::follow(folder.path());
    listener.until_serving(&[]).await;
    drop(listener.events);
    timeout(DEADLINE, listener.following).await.expect("ends").expect("no panic");
}
