//! SmolVLM: pictures as tiles, and texts with pictures.

use std::fs;

use models::{
    LanguageModel, SmolVlm, SmolVlmConfig,
    generate::{GenerationConfig, generate},
    load_language_model,
    pictures::{Picture, PictureProcessor},
    serving::{Engine, EngineConfig, Event, Request},
};
use nn::cross_entropy;
use tensor_core::{Device, Tensor};

use crate::fixture::{Fixture, Run, floats, parameters};

/// The token in whose place the small model has pictures.
const TOKEN: u32 = 39;

#[test]
fn smolvlm() {
    Fixture::open("smolvlm").check(1e-4, |fixture, device| {
        let model = SmolVlm::from_folder(fixture.folder(), device)?;
        let (ids, tiles) = (fixture.input("ids", device), fixture.input("tiles", device));
        let logits = model.forward_with(&ids, &tiles)?;
        let (rows, length) = (ids.dims()[0], ids.dims()[1] - 1);
        let before = logits.narrow(1, 0, length)?.reshape([rows * length, logits.dims()[2]])?;
        let labels = fixture.input("labels", device).narrow(1, 1, length)?.flatten_all();
        let loss = cross_entropy(&before, &labels)?;
        let features = model.features(&tiles)?.reshape([12, 32])?;
        let plain = model.forward(&ids.narrow(0, 1, 1)?.narrow(1, 0, 4)?)?;
        let outputs = vec![("logits", logits), ("features", features), ("plain", plain)];
        Ok(Run { outputs, loss, parameters: parameters(&model) })
    });
}

#[test]
fn the_most_likely_text_after_a_picture_is_the_references() {
    let (fixture, device) = (Fixture::open("smolvlm"), backend_cpu::cpu());
    let model = SmolVlm::from_folder(fixture.folder(), &device).unwrap();
    let ids = fixture.input("ids", &device).narrow(0, 0, 1).unwrap();
    let mut text = ids.narrow(1, 0, ids.dims()[1] - 2).unwrap();
    let tiles = fixture.input("tiles", &device).narrow(0, 0, 2).unwrap();
    let mut found = Vec::new();
    for _ in 0..6 {
        // The reference may not write a token of a picture, which is the last of the vocabulary.
        let logits = model.forward_with(&text, &tiles).unwrap().select(1, -1).unwrap();
        let logits = logits.narrow(1, 0, TOKEN as usize).unwrap();
        let next = logits.argmax_axis(-1, true).unwrap().to_dtype(text.dtype()).unwrap();
        found.extend(floats(&next));
        text = Tensor::concat(&[text, next], 1).unwrap();
    }
    assert_eq!(found, fixture.output("generated"));
}

/// A processor of tiles of 32 pixels, for the small model.
fn processor(fixture: &Fixture, settings: &str) -> PictureProcessor {
    fs::write(fixture.folder().join("preprocessor_config.json"), settings).unwrap();
    PictureProcessor::from_folder(fixture.folder()).unwrap()
}

#[test]
fn pictures_become_the_references_tiles() {
    let model = Fixture::open("smolvlm");
    let file = Fixture::open("smolvlm_processor");
    for name in ["wide", "high", "small", "whole"] {
        let settings = &file.texts()[&format!("{name}_config")];
        let pixels = file.input(name, &backend_cpu::cpu());
        let bytes: Vec<u8> = floats(&pixels).into_iter().map(|byte| byte as u8).collect();
        let prepared =
            processor(&model, settings).prepare([pixels.dims()[0], pixels.dims()[1]], &bytes).unwrap();
        assert_eq!(prepared.text(), file.texts()[name], "{name}");
        let tiles = prepared.tiles(&backend_cpu::cpu()).unwrap();
        let expected = file.output(name);
        taper_testing::assert_close(&floats(&tiles), &expected, (1e-5, 1e-5), name);
    }
}

/// The settings of a processor that cuts a square into two times two tiles.
const SETTINGS: &str =
    r#"{"size": {"longest_edge": 64}, "max_image_size": {"longest_edge": 32}, "image_std": [0.5, 0.5, 0.5]}"#;

/// A picture of noise, and its tiles.
fn noise(processor: &PictureProcessor, seed: u8) -> models::pictures::PreparedPicture {
    let bytes: Vec<u8> =
        (0..20 * 20 * 3u32).map(|k| (k.wrapping_mul(2_654_435_761) >> 24) as u8 ^ seed).collect();
    processor.prepare([20, 20], &bytes).unwrap()
}

/// The tokens of a prompt with pictures in two places.
fn prompt(model: &dyn LanguageModel, pictures: &[Picture]) -> Vec<u32> {
    let mut tokens = vec![5, 6];
    for picture in pictures {
        tokens.extend(vec![TOKEN; picture.tokens().len()]);
        tokens.push(9);
    }
    model.pictures().unwrap().prompt(tokens, pictures).unwrap()
}

fn row(tokens: &[u32], device: &Device) -> Tensor {
    let tokens: Vec<i32> = tokens.iter().map(|token| *token as i32).collect();
    Tensor::from_vec(tokens.clone(), [1, tokens.len()], device).unwrap()
}

#[test]
fn pictures_in_prompts_are_read_as_tiles_are() {
    for device in crate::devices() {
        let fixture = Fixture::open("smolvlm");
        let processor = processor(&fixture, SETTINGS);
        let model = SmolVlm::from_folder(fixture.folder(), &device).unwrap();
        let pictures = model.pictures().unwrap();
        assert!(pictures.is_empty() && model.repeats_steps() && !model.knows_token(40));
        let prepared = [noise(&processor, 0), noise(&processor, 85)];
        let used: Vec<Picture> =
            prepared.iter().map(|prepared| pictures.add(prepared.clone()).unwrap()).collect();
        assert_eq!((used[0].tokens(), used[1].tokens()), (40..60, 60..80));
        assert!(!model.repeats_steps() && model.knows_token(79) && !model.knows_token(80));
        let tokens = prompt(&model, &used);
        let found = model.forward(&row(&tokens, &device)).unwrap();
        let plain: Vec<u32> = tokens.iter().map(|token| if *token < 40 { *token } else { TOKEN }).collect();
        let tiles: Vec<Tensor> = prepared.iter().map(|prepared| prepared.tiles(&device).unwrap()).collect();
        let tiles = Tensor::concat(&tiles, 0).unwrap();
        let expected = model.forward_with(&row(&plain, &device), &tiles).unwrap();
        taper_testing::assert_close(&floats(&found), &floats(&expected), (1e-4, 1e-4), "whole");
        // Part by part, across tiles, with a cache.
        let mut cache = model.new_cache();
        let mut parts = Vec::new();
        for part in tokens.chunks(7) {
            parts.push(model.hidden(&row(part, &device), Some(&mut cache)).unwrap());
        }
        let parts = model.logits(&Tensor::concat(&parts, 1).unwrap()).unwrap();
        taper_testing::assert_close(&floats(&parts), &floats(&expected), (1e-3, 1e-3), "parts");
        // A picture that comes again has the same numbers; one that is gone is no longer read.
        let again = pictures.add(prepared[1].clone()).unwrap();
        assert_eq!(again.tokens(), 60..80);
        drop((used, again));
        let read = model.forward(&row(&tokens, &device)).and_then(|logits| logits.to_vec::<f32>());
        assert!(pictures.is_empty() && read.is_err());
        assert_eq!(pictures.add(prepared[0].clone()).unwrap().tokens(), 40..60);
    }
}

#[test]
fn wrong_pictures_and_prompts_are_refused() {
    let (fixture, device) = (Fixture::open("smolvlm"), backend_cpu::cpu());
    let processor = processor(&fixture, SETTINGS);
    let model = load_language_model(fixture.folder(), &device).unwrap();
    let pictures = model.pictures().unwrap();
    let picture = pictures.add(noise(&processor, 0)).unwrap();
    let error = pictures.prompt(vec![TOKEN; 19], std::slice::from_ref(&picture)).unwrap_err();
    assert!(error.to_string().contains("19 tokens of pictures for 20 vectors"), "{error}");
    assert!(pictures.prompt(vec![TOKEN; 21], &[picture]).is_err());
    assert!(generate(&*model, &[5, 41], &GenerationConfig::default()).is_err());
    assert!(processor.prepare([0, 3], &[]).is_err() && processor.prepare([2, 2], &[0; 11]).is_err());
    for (settings, reason) in [
        (r#"{"resample": 0}"#, "resample is 0"),
        (r#"{"do_normalize": false}"#, "do_normalize is false"),
        (r#"{"image_std": [0, 1, 1]}"#, "deviations"),
        (r#"{"image_mean": [1]}"#, "not three numbers"),
        (r#"{"image_seq_len": 5}"#, "image_seq_len is 5; the model has 4"),
    ] {
        fs::write(fixture.folder().join("preprocessor_config.json"), settings).unwrap();
        let error = PictureProcessor::from_folder(fixture.folder()).unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
    }
    fs::remove_file(fixture.folder().join("preprocessor_config.json")).unwrap();
    let error = PictureProcessor::from_folder(fixture.folder()).unwrap_err();
    assert!(error.to_string().contains("preprocessor_config.json"), "{error}");
    // Version 5 of transformers writes the settings of all parts to one file.
    let both = format!(r#"{{"image_seq_len": 4, "image_processor": {SETTINGS}}}"#);
    fs::write(fixture.folder().join("processor_config.json"), both).unwrap();
    assert_eq!(PictureProcessor::from_folder(fixture.folder()).unwrap(), processor);
    let config =
        SmolVlmConfig { image_token_id: 40, ..SmolVlmConfig::from_folder(fixture.folder()).unwrap() };
    assert!(SmolVlm::new(&config, fixture.source(&device)).is_err());
    let config = SmolVlmConfig { image_token_id: TOKEN, scale_factor: 3, ..config };
    assert!(SmolVlm::new(&config, fixture.source(&device)).is_err());
}

/// The texts of an engine for these prompts.
fn written(engine: &mut Engine, prompts: &[Vec<u32>]) -> Vec<Vec<u32>> {
    let ids: Vec<_> =
        prompts.iter().map(|prompt| engine.add(Request::new(prompt.clone(), 6)).unwrap()).collect();
    let mut texts = vec![Vec::new(); ids.len()];
    while !engine.is_idle() {
        for (id, event) in engine.step() {
            let at = ids.iter().position(|known| *known == id).unwrap();
            match event {
                Event::Token { token, .. } => texts[at].push(token.id),
                Event::Failed(error) => panic!("{error}"),
                Event::Finished(_) => {}
            }
        }
    }
    texts
}

#[test]
fn an_engine_reads_prompts_with_pictures_beside_others() {
    let (fixture, device) = (Fixture::open("smolvlm"), backend_cpu::cpu());
    let processor = processor(&fixture, SETTINGS);
    let model = SmolVlm::from_folder(fixture.folder(), &device).unwrap();
    let pictures = model.pictures().unwrap().clone();
    let picture = |seed: u8| pictures.add(noise(&processor, seed)).unwrap();
    let used = [picture(0), picture(85)];
    let prompts = [prompt(&model, &used[..1]), vec![5, 7, 8], prompt(&model, &used)];
    let config = GenerationConfig { max_new_tokens: 6, ..Default::default() };
    let alone = |prompt: &Vec<u32>| -> Vec<u32> {
        generate(&model, prompt, &config).unwrap().map(|token| token.unwrap().id).collect()
    };
    let expected: Vec<Vec<u32>> = prompts.iter().map(alone).collect();
    assert!(expected[0] != expected[2]);
    let mut engine =
        Engine::new(Box::new(model), EngineConfig { prompt_chunk: 16, ..Default::default() }).unwrap();
    assert_eq!(written(&mut engine, &prompts), expected);
    // A kept text with a picture is used when the picture comes again, and not when another one does.
    let reused = engine.counts().reused;
    drop(used);
    let used = [picture(0), picture(1)];
    let first = prompt(engine.model(), &used[..1]);
    let other = prompt(engine.model(), &used[1..]);
    assert_eq!(written(&mut engine, std::slice::from_ref(&first)), [expected[0].clone()]);
    let counted = engine.counts().reused;
    assert!(counted > reused + 16, "{counted} of {reused}");
    let texts = written(&mut engine, std::slice::from_ref(&other));
    assert_eq!((engine.counts().reused, texts[0].len()), (counted, 6));
}
