//! A GPU in software: Mesa's Vulkan driver that runs on the CPU, so that the GPU executor is tested on any machine.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::apt;

/// Of Debian and Ubuntu.
const PACKAGE: &str = "mesa-vulkan-drivers";
/// Where drivers are registered.
const FOLDERS: [&str; 3] = ["/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d"];
/// How the file of the software driver starts; its end differs by architecture.
const DRIVER: &str = "lvp_icd";

/// The file that registers the software driver, which is installed first if it is missing; none, and the reason on the
/// screen, where that cannot be done.
pub fn software_driver() -> Result<Option<PathBuf>> {
    if find().is_none()
        && let Err(reason) = apt::install(PACKAGE)?
    {
        println!("no Vulkan driver in software is here, and {reason}; install it with: apt-get install {PACKAGE}");
        return Ok(None);
    }
    let driver = find();
    match &driver {
        Some(path) => println!("driver: {}", path.display()),
        None => println!("{PACKAGE} is installed, but brings no Vulkan driver in software"),
    }
    Ok(driver)
}

fn find() -> Option<PathBuf> {
    let files = FOLDERS.iter().filter_map(|f| fs::read_dir(Path::new(f)).ok()).flatten().flatten();
    files.map(|f| f.path()).find(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(DRIVER)))
}
