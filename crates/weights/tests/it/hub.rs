//! Models in the cache of Hugging Face's libraries.

use std::fs;

use nn::StateDict;
use tensor_core::{ErrorKind, Tensor};
use weights::HubCache;

use crate::common::cpu;

#[test]
fn models_are_found_by_name_and_revision() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("models--org--tiny");
    fs::create_dir_all(model.join("refs/pr")).unwrap();
    for (commit, reference, value) in [("aaaa", "main", 1.0), ("bbbb", "pr/7", 2.0)] {
        let snapshot = model.join("snapshots").join(commit);
        fs::create_dir_all(&snapshot).unwrap();
        fs::write(model.join("refs").join(reference), format!("{commit}\n")).unwrap();
        let dict = StateDict::from([("x".to_string(), Tensor::full([1], value, &cpu()).unwrap())]);
        nn::save_safetensors(snapshot.join("model.safetensors"), &dict).unwrap();
    }
    let cache = HubCache::at(folder.path());
    for (revision, wanted) in [(None, 1.0), (Some("pr/7"), 2.0), (Some("bbbb"), 2.0)] {
        let file = weights::open(cache.model("org/tiny", revision).unwrap()).unwrap();
        assert_eq!(file.tensor("x", &cpu()).unwrap().to_vec::<f32>().unwrap(), [wanted]);
    }
    assert!(cache.file("org/tiny", None, "model.safetensors").is_ok());

    let refused = |name: &str, revision: Option<&str>| cache.model(name, revision).unwrap_err();
    let message = refused("org/other", None).to_string();
    assert!(message.contains("org/other was not downloaded"), "{message}");
    let message = refused("org/tiny", Some("v2")).to_string();
    assert!(message.contains("no revision \"v2\"") && message.contains("main"), "{message}");
    assert!(cache.file("org/tiny", None, "vocab.txt").unwrap_err().to_string().contains("vocab.txt"));
    // Names and references that lead out of the folder.
    for name in ["../x", "a/../b", "", "a/b/c", "/etc", "a\\b"] {
        assert!(matches!(refused(name, None).kind(), ErrorKind::Invalid { .. }), "{name}");
    }
    assert!(matches!(refused("org/tiny", Some("../../x")).kind(), ErrorKind::Invalid { .. }));
    fs::write(model.join("refs/evil"), "../../..").unwrap();
    assert!(matches!(refused("org/tiny", Some("evil")).kind(), ErrorKind::File { .. }));
}
