//! The stories in `scenarios/`, one file each.

use std::{fs, path::Path};

use lb_tests::scenario;

#[test]
fn every_story_ends_as_it_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut stories: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    stories.sort();
    assert!(!stories.is_empty());
    let failed: Vec<_> = stories.iter().filter_map(|story| scenario::run(story).err()).collect();
    assert!(failed.is_empty(), "{failed:#?}");
}
