//! A backend of another crate that is registered by name. Each test has its own process, because a
//! registration is permanent.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use taper::{
    ErrorKind,
    prelude::*,
    tensor_core::{Backend, DeviceInfo, DeviceKind, DeviceProvider, Launch, MemoryStats, Storage},
};
use taper_testing::{run_alone, test_process};

/// The CPU's backend under another name.
#[derive(Debug)]
struct Renamed {
    info: DeviceInfo,
    inner: Arc<dyn Backend>,
}

impl Backend for Renamed {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
    fn allocate(&self, dtype: DType, numel: usize) -> Result<Storage> {
        self.inner.allocate(dtype, numel)
    }
    fn upload(&self, dtype: DType, bytes: &[u8]) -> Result<Storage> {
        self.inner.upload(dtype, bytes)
    }
    fn download(&self, storage: &Storage, start: usize, out: &mut [u8]) -> Result<()> {
        self.inner.download(storage, start, out)
    }
    fn run(&self, launch: &Launch<'_>) -> Result<()> {
        self.inner.run(launch)
    }
    fn synchronize(&self) -> Result<()> {
        self.inner.synchronize()
    }
    fn memory(&self) -> MemoryStats {
        self.inner.memory()
    }
    fn reset_peak(&self) {
        self.inner.reset_peak();
    }
    fn empty_cache(&self) {
        self.inner.empty_cache();
    }
}

/// Two cards, with two devices on each.
struct Cards {
    name: &'static str,
    aliases: &'static [&'static str],
    kind: DeviceKind,
    /// A wrong name of its devices in place of `name:0`, for a provider that breaks the contract.
    called: Option<&'static str>,
    opened: Mutex<BTreeMap<(usize, usize), Device>>,
}

impl Cards {
    fn named(name: &'static str) -> Cards {
        Cards { name, aliases: &[], kind: DeviceKind::Other, called: None, opened: Mutex::default() }
    }

    fn info(&self, index: usize, logical: usize) -> DeviceInfo {
        let after = if logical > 0 { format!("#{logical}") } else { String::new() };
        let name = self.called.map_or(format!("{}:{index}{after}", self.name), str::to_string);
        DeviceInfo { name, kind: self.kind, ..taper::cpu().info().clone() }
    }
}

impl DeviceProvider for Cards {
    fn name(&self) -> &str {
        self.name
    }
    fn aliases(&self) -> &[&str] {
        self.aliases
    }
    fn devices(&self) -> Vec<DeviceInfo> {
        (0..2).map(|index| self.info(index, 0)).collect()
    }
    fn logical_devices(&self) -> usize {
        2
    }
    fn open(&self, index: usize, logical: usize) -> Result<Device> {
        if index >= 2 {
            let asked = format!("{}:{index}", self.name);
            return Err(Error::new(ErrorKind::UnknownDevice { asked, hint: "there are two cards".into() }));
        }
        let mut opened = self.opened.lock().unwrap();
        let device = opened.entry((index, logical)).or_insert_with(|| {
            let inner = taper::cpu().backend().clone();
            Device::new(Arc::new(Renamed { info: self.info(index, logical), inner }))
        });
        Ok(device.clone())
    }
    fn variables(&self) -> &[&'static str] {
        &["TAPER_CARDS"]
    }
}

#[test]
fn its_devices_are_had_by_name() -> Result<()> {
    if run_alone(its_devices_are_had_by_name) {
        return Ok(());
    }
    assert!(!taper::is_available("mine") && taper::device_count("mine") == 0);
    let message = taper::device("mine:0").unwrap_err().to_string();
    assert!(message.contains("register_backend"), "{message}");
    taper::register_backend(Cards { aliases: &["my-card"], ..Cards::named("mine") })?;

    let device = taper::device("mine:0")?;
    assert_eq!(device.name(), "mine:0");
    for name in ["mine", "MINE:0", "my-card", " my-card:0", "mine:0#0"] {
        assert_eq!(taper::device(name)?, device, "{name}");
        assert!(taper::is_available(name), "{name}");
    }
    assert_eq!(taper::device("mine:1#1")?.name(), "mine:1#1");
    let awaited = pollster::block_on(taper::device_async("mine:1"))?;
    assert_eq!(awaited, taper::device("mine:1")?);
    assert_eq!((taper::device_count("mine"), taper::device_count("my-card")), (2, 2));
    let listed: Vec<String> = taper::devices().into_iter().map(|info| info.name).collect();
    assert_eq!(listed[0], "cpu");
    assert_eq!(listed[listed.len() - 2..], ["mine:0", "mine:1"]);

    let x = Tensor::arange(1.0, 4.0, 1.0, &device)?.requires_grad();
    x.powi(2).sum().backward()?;
    assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [2.0, 4.0, 6.0]);
    assert_eq!(x.detach().to_string(), "tensor([1., 2., 3.], device=mine:0)");
    Ok(())
}

#[test]
fn errors_of_names_know_it() -> Result<()> {
    if run_alone(errors_of_names_know_it) {
        return Ok(());
    }
    taper::register_backend(Cards::named("mine"))?;
    taper::register_backend(Cards { called: Some("card"), ..Cards::named("careless") })?;
    for (name, words) in [
        ("mine:2", "there are two cards"),
        ("mine:x", "the part after mine: must be a number"),
        ("mine:0#2", "the number after # is below 2"),
        ("yours", "mine:0, mine:1"),
        ("careless:1", "its DeviceInfo must have the name careless:1"),
    ] {
        assert!(name == "careless:1" || !taper::is_available(name), "{name}");
        for error in
            [taper::device(name).unwrap_err(), pollster::block_on(taper::device_async(name)).unwrap_err()]
        {
            let text = error.to_string();
            assert!(text.contains(name) && text.contains(words), "{text}");
        }
        let error = taper::device(name).unwrap_err();
        assert!(error.location().is_some_and(|line| line.file() == file!()), "{name}: {error}");
    }
    Ok(())
}

#[test]
fn a_bad_registration_is_an_error() -> Result<()> {
    if run_alone(a_bad_registration_is_an_error) {
        return Ok(());
    }
    taper::register_backend(Cards { aliases: &["mine-too"], ..Cards::named("mine") })?;
    let cases: [(&str, &'static [&'static str], &str); 12] = [
        ("", &[], "cannot be the name"),
        ("a:b", &[], "cannot be the name"),
        ("a#b", &[], "cannot be the name"),
        ("my card", &[], "cannot be the name"),
        ("Mine", &[], "small letter"),
        ("2nd", &[], "begin with a small letter"),
        ("gerät", &[], "cannot be the name"),
        ("auto", &[], "stands for a choice"),
        ("cpu", &[], "taken by the backend \"cpu\""),
        ("mine", &[], "taken by the backend \"mine\""),
        ("mine-too", &[], "taken by the backend \"mine\""),
        ("other", &["fine", "cpu"], "\"cpu\" is taken"),
    ];
    for (name, aliases, words) in cases {
        let error = taper::register_backend(Cards { aliases, ..Cards::named(name) }).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error.kind(), ErrorKind::Invalid { op: "register_backend", .. }), "{text}");
        assert!(text.contains(words), "{name:?}: {text}");
        assert!(error.location().is_some_and(|line| line.file() == file!()), "{text}");
    }
    // None of the refused names is known.
    assert!(!taper::is_available("other") && !taper::is_available("fine"));
    taper::register_backend(Cards::named("other"))
}

#[test]
fn automatic_choice_takes_it_where_it_is_asked_for_or_the_only_hardware() {
    const MARK: &str = "TAPER_TEST_CHOICE";
    if let Ok(expected) = std::env::var(MARK) {
        taper::register_backend(Cards { kind: DeviceKind::Other, ..Cards::named("slow") }).unwrap();
        taper::register_backend(Cards { kind: DeviceKind::DiscreteGpu, ..Cards::named("fast") }).unwrap();
        let chosen = taper::best_device();
        // A machine may have a GPU of its own, which comes first.
        assert!(chosen.name() == expected || chosen.info().kind.is_hardware_gpu(), "{chosen}");
        assert_eq!(chosen, pollster::block_on(taper::device_async("auto")).unwrap());
        return;
    }
    let chosen = |variable: Option<(&str, &str)>, expected: &str| {
        let mut child = test_process(automatic_choice_takes_it_where_it_is_asked_for_or_the_only_hardware);
        child.env(MARK, expected).env("TAPER_CARDS", "2").env("TAPER_CARD", "2").arg("--nocapture");
        child.env_remove("TAPER_DEVICE").envs(variable);
        let child = child.output().unwrap();
        let told = String::from_utf8_lossy(&child.stdout) + String::from_utf8_lossy(&child.stderr);
        assert!(child.status.success() && told.contains("1 passed"), "{expected}: {told}");
        // Its own variable is known, and so are the others.
        let complaint = "nothing reads the environment variable TAPER_CARD; did you mean TAPER_CARDS?";
        assert_eq!(told.matches("nothing reads").count(), 1, "{told}");
        assert!(told.contains(complaint), "{told}");
    };
    chosen(None, "fast:0");
    chosen(Some(("TAPER_DEVICE", "slow:1")), "slow:1");
    chosen(Some(("TAPER_DEVICE", "cpu")), "cpu");
}

/// A library on top of Taper may hide its lines, as Taper's own crates do.
#[test]
fn errors_name_no_line_of_a_library() {
    if run_alone(errors_name_no_line_of_a_library) {
        return;
    }
    let failed = || Tensor::ones(3, &taper::cpu()).and_then(|x| x.reshape([2, 2])).unwrap_err();
    assert!(failed().location().is_some_and(|line| line.file() == file!()));
    taper::tensor_core::hide_lines_of(file!());
    assert!(failed().location().is_none(), "{}", failed());
}
