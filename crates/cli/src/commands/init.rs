//! `memfit init`: a run file to start from, with every key explained.

use std::io::ErrorKind;

use anyhow::Result;

use crate::args::InitArgs;
use crate::failure::{bad_data, usage};
use crate::say::say;
use crate::spec::{Purpose, Said, commented};

pub fn init(args: &InitArgs, json: bool) -> Result<()> {
    let text_of = |value: &str| toml::Value::from(value).to_string();
    let mut set = vec![("train.batch", "32".to_string()), ("train.epochs", "20".to_string())];
    let model = args.model.as_deref().unwrap_or(if args.data.is_some() { "resnet18" } else { "digits" });
    memfit::Model::from_name(model).map_err(usage)?;
    set.push(("model.name", text_of(model)));
    match &args.data {
        Some(path) => set.push(("data.train", text_of(&path.to_string_lossy()))),
        None if model == "digits" => set.push(("data.kind", text_of("digits"))),
        None => {}
    }
    let text = commented(&Purpose { set });
    // What is written must be readable: our own table says so.
    Said::read(&text, std::path::Path::new("")).and_then(|s| s.spec()).map_err(usage)?;
    let path = &args.file;
    let file = std::fs::File::create_new(path).map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => usage(format!("{} is there already; name another file", path.display())),
        _ => bad_data(format!("{} cannot be written: {e}", path.display())),
    })?;
    std::io::Write::write_all(&mut { file }, text.as_bytes())
        .map_err(|e| bad_data(format!("{} cannot be written: {e}", path.display())))?;
    if json {
        say!("{}", serde_json::json!({ "event": "init", "file": path.display().to_string() }));
    } else {
        say!("{0} is written: edit it, then `memfit plan {0}` or `memfit train {0}`", path.display());
    }
    Ok(())
}
