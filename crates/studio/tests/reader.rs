//! The graph, the timeline and the reports of the page, used in Chromium with pointer and keys: `cargo test
//! --workspace --test reader -- --ignored`.
#![allow(clippy::unwrap_used, clippy::panic)]

mod chromium;

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
};

use autograd::TensorGrad;
use chromium::{DESKTOP, PHONE, probed};
use inspect::{Graph, NodeKind, explain, memory_snapshot, profile, record_memory};
use nn::{Conv2d, Linear, Module, Relu, Sequential, cross_entropy};
use serde_json::Value;
use tensor_core::{Generator, Result, Tensor};

/// Uses the graph, the timeline and the tree of layers as a reader would, with pointer and keys, and sends
/// its findings as JSON.
const READER: &str = r#"<script>addEventListener('load', async () => {
  const all = selector => [...document.querySelectorAll(selector)], press = (target, key) => target.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }));
  const graph = () => document.querySelector('.graph'), within = selector => [...graph().querySelectorAll(selector)];
  const button = text => within('button').find(button => button.textContent === text);
  // The points of all lines that are inside of a box, and pairs of boxes that overlap.
  const crossings = graph => {
    const boxes = [...graph.querySelectorAll('.box:not(.frame) > rect')].map(rect => { const box = rect.getBBox(); return [box.x + 0.5, box.y + 0.5, box.x + box.width - 0.5, box.y + box.height - 0.5]; });
    let found = 0;
    for (const path of graph.querySelectorAll('path.line')) {
      const [, dx, dy] = path.getAttribute('transform').match(/translate\(([-\d.]+) ([-\d.]+)\)/).map(Number), length = path.getTotalLength();
      for (let k = 0; k <= 200; k++) {
        const { x, y } = path.getPointAtLength(length * k / 200);
        found += boxes.some(([x0, y0, x1, y1]) => x + dx > x0 && x + dx < x1 && y + dy > y0 && y + dy < y1);
      }
    }
    boxes.forEach((a, k) => boxes.slice(0, k).forEach(b => { found += a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3]; }));
    return found;
  };
  const picture = () => document.querySelector('.graph svg'), names = () => within('.box .name').map(name => name.textContent);
  const answer = { folded: names(), lines: within('path.line').length, foldedCrossings: crossings(graph()),
    height: picture().getBoundingClientRect().height, width: picture().getBoundingClientRect().width, room: document.querySelector('.picture').clientWidth };
  answer.shared = [...all('.graph')[1].querySelectorAll('.box .name')].map(name => name.textContent);
  answer.sharedCrossings = crossings(all('.graph')[1]);
  answer.back = all('.graph path.back').length;
  const conv = within('.box').find(box => box.textContent.startsWith('conv1'));
  press(conv, 'Enter');
  await null;
  answer.conv = within('.box.operation, .box.leaf').map(box => box.querySelector('.name').textContent);
  answer.focus = document.activeElement.dataset.key === conv.dataset.key && document.activeElement.getAttribute('aria-expanded');
  press(document.activeElement, 'ArrowDown');
  answer.next = document.activeElement.querySelector('.name').textContent;
  answer.convCrossings = crossings(graph());
  button('Open all').click();
  await null;
  answer.open = within('.box.operation, .box.leaf, .box.data, .box.output').length;
  answer.openCrossings = crossings(graph());
  const before = picture().style.width;
  press(document.querySelector('.picture'), '+');
  answer.zooms = parseFloat(picture().style.width) > parseFloat(before);
  button('Fold all').click();
  await null;
  const find = document.getElementById('find-layer');
  find.value = 'conv3.weight';
  find.dispatchEvent(new Event('input'));
  answer.found = all('.box.found .name').map(name => name.textContent);
  find.value = '';
  find.dispatchEvent(new Event('input'));
  const timeline = document.querySelector('.timeline svg'), told = () => document.getElementById('told').textContent;
  timeline.focus();
  press(timeline, 'ArrowRight');
  answer.first = told();
  press(timeline, 'ArrowRight');
  answer.second = told();
  press(timeline, 'ArrowUp');
  answer.above = told();
  answer.layers = all('#layers summary').map(summary => summary.textContent);
  answer.separate = all('.why').map(why => why.textContent);
  answer.stored = all('#explanations td').filter(cell => cell.textContent.startsWith('stored: ')).length;
  answer.peak = all('.peak summary').length;
  answer.anomaly = all('.trouble td').map(cell => cell.textContent);
  answer.settings = all('#settings td').map(cell => cell.textContent);
  parent.postMessage(JSON.stringify(answer), '*');
})</script></body>"#;

/// A convolutional network of five layers.
#[derive(Debug, Module)]
struct Net {
    conv1: Conv2d,
    conv2: Conv2d,
    conv3: Conv2d,
    fc1: Linear,
    fc2: Linear,
}

impl Net {
    fn new(rng: &Generator) -> Result<Net> {
        Ok(Net {
            conv1: Conv2d::new(1, 4, 3, rng)?,
            conv2: Conv2d::new(4, 4, 3, rng)?,
            conv3: Conv2d::new(4, 4, 3, rng)?,
            fc1: Linear::new(16, 8, rng)?,
            fc2: Linear::new(8, 3, rng)?,
        })
    }

    fn loss(&self, x: &Tensor, classes: &Tensor) -> Result<Tensor> {
        let x = self.conv1.forward(x)?.relu();
        let x = self.conv2.forward(&x)?.relu();
        let x = self.conv3.forward(&x)?.relu();
        let x = self.fc1.forward(&x.flatten(1, -1)?)?.relu();
        cross_entropy(&self.fc2.forward(&x)?, classes)
    }
}

/// Asks as a button of the page does.
fn press(url: &str, button: &str) {
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "POST /{path}{button} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// Records a training step of that network, and everything that the page can show of it. Returns the number
/// of nodes of the graph without constants.
fn a_recorded_step(url: &str) -> Result<usize> {
    record_memory(true);
    let device = backend_cpu::cpu();
    let rng = Generator::seed(1, &device);
    let net = Net::new(&rng)?;
    let (x, classes) = (Tensor::randn([6, 1, 8, 8], &rng)?, Tensor::new([0, 1, 2, 0, 1, 2], &device)?);
    studio::show_model("net", &net);
    let graph = Graph::of(&[&net.loss(&x, &classes)?], &net.named_parameters());
    studio::show_graph("loss", &graph);
    // A layer that is called twice reads its own result, so that its folded box would stand in a circle.
    let shared = Sequential::new().add(Linear::new(8, 8, &rng)?).add(Relu);
    let twice = shared.forward(&shared.forward(&Tensor::randn([2, 8], &rng)?)?)?;
    studio::show_graph("shared", &Graph::of(&[&twice.sum()], &shared.named_parameters()));
    studio::show_explanation("the loss", &explain(&net.loss(&x, &classes)?)?);
    studio::show_profile(&profile(|| net.loss(&x, &classes)?.backward())?, 3);
    studio::show_memory(&memory_snapshot()?, 3);
    press(url, "ask/anomaly");
    studio::step(4, || (&x * -1.0).log().sum().item::<f32>())?;
    let batch = |setting: &studio::Setting| net.loss(&setting.batch_of(&x)?, &setting.batch_of(&classes)?);
    studio::what_if(&net, 6, &[], batch)?;
    press(url, "what-if/2");
    studio::what_if(&net, 6, &[], batch)?;
    Ok(graph.nodes.iter().filter(|node| node.kind != NodeKind::Constant).count())
}

#[test]
#[ignore = "needs Chromium"]
fn the_graph_and_the_timeline_are_read_with_pointer_and_keys() -> Result<()> {
    let nodes = a_recorded_step(&studio::serve()?)?;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("saved.html");
    studio::save(&path)?;
    let page = fs::read_to_string(path).unwrap();
    for (width, dark) in [(DESKTOP, false), (PHONE, true)] {
        let text = probed(folder.path(), &page, READER, width, dark);
        let answer: Value = serde_json::from_str(&text).unwrap();
        let names = |key: &str| -> Vec<String> {
            let names = answer[key].as_array().unwrap_or_else(|| panic!("{key}: {text}")).iter();
            names.map(|name| name.as_str().unwrap().to_string()).collect()
        };
        let folded = names("folded");
        for layer in ["conv1 Conv2d", "conv2 Conv2d", "conv3 Conv2d", "fc1 Linear", "fc2 Linear"] {
            assert_eq!(folded.iter().filter(|name| *name == layer).count(), 1, "{layer}: {folded:?}");
        }
        // Folded, it fits on a screen: at most 20 boxes, 800 pixels high, and no wider than its frame.
        assert!(folded.len() <= 20 && answer["lines"].as_u64().unwrap() >= folded.len() as u64 - 2, "{text}");
        assert!(answer["height"].as_f64().unwrap() <= 800.0, "{}", answer["height"]);
        assert!(answer["width"].as_f64().unwrap() <= answer["room"].as_f64().unwrap() + 1.0, "{text}");
        for crossings in ["foldedCrossings", "convCrossings", "openCrossings", "sharedCrossings"] {
            assert_eq!(answer[crossings], 0, "{crossings}");
        }
        let shared = names("shared");
        assert!(shared.contains(&"0".into()) && answer["back"] == 1, "{shared:?} {}", answer["back"]);
        let conv = names("conv");
        assert!(conv.contains(&"conv1.weight".into()) && conv.len() >= 7, "{conv:?}");
        assert_eq!(answer["focus"], "true", "{text}");
        assert!(conv.contains(&answer["next"].as_str().unwrap().into()), "{}", answer["next"]);
        assert_eq!(answer["open"], nodes, "{text}");
        assert_eq!(answer["zooms"], true);
        assert_eq!(names("found"), ["conv3 Conv2d"]);
        let [first, second, above] = ["first", "second", "above"].map(|key| answer[key].as_str().unwrap());
        assert!(first.starts_with("cpu: ") && second.starts_with("cpu: ") && first != second, "{text}");
        assert!(above.starts_with("host submits: "), "{above}");
        let layers = names("layers");
        let conv1 = layers.iter().find(|layer| layer.starts_with("conv1 ")).unwrap();
        assert!(conv1.contains(", forward ") && conv1.contains(", backward "), "{conv1}");
        assert!(names("separate").iter().any(|text| text.contains("not elementwise")), "{text}");
        assert!(answer["stored"].as_u64().unwrap() > 0 && answer["peak"].as_u64().unwrap() > 0, "{text}");
        let anomaly = names("anomaly");
        for cell in ["Log", "Mul", "input 1"] {
            assert!(anomaly.contains(&cell.into()), "{cell}: {anomaly:?}");
        }
        let settings = names("settings");
        assert!(
            settings.contains(&"with a batch of 3".into()) && settings.contains(&"1.00 ×".into()),
            "{settings:?}"
        );
    }
    Ok(())
}
