//! GPUs in software: Vulkan drivers that run on the CPU, so that the GPU executor is tested on any machine.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::apt;

#[derive(Clone, Copy)]
pub enum Driver {
    /// Mesa's llvmpipe.
    Mesa,
    /// Google's, which comes with Chromium.
    SwiftShader,
}

impl Driver {
    /// Of Debian and Ubuntu.
    fn package(self) -> &'static str {
        match self {
            Driver::Mesa => "mesa-vulkan-drivers",
            Driver::SwiftShader => "chromium",
        }
    }

    /// Where it is registered.
    fn folders(self) -> &'static [&'static str] {
        match self {
            Driver::Mesa => &["/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d"],
            Driver::SwiftShader => &["/usr/lib/chromium", "/usr/lib/chromium-browser", "/opt/google/chrome"],
        }
    }

    /// How the file that registers it starts; the end of some differs by architecture.
    fn file(self) -> &'static str {
        match self {
            Driver::Mesa => "lvp_icd",
            Driver::SwiftShader => "vk_swiftshader_icd",
        }
    }
}

/// The file that registers a driver, which is installed first if it is missing; none, and the reason on the screen, where that
/// cannot be done.
pub fn installed(driver: Driver) -> Result<Option<PathBuf>> {
    let package = driver.package();
    if find(driver).is_none()
        && let Err(reason) = apt::install(&[package])?
    {
        println!("no Vulkan driver in software is here, and {reason}; install it with: apt-get install {package}");
        return Ok(None);
    }
    let found = find(driver);
    match &found {
        Some(path) => println!("driver: {}", path.display()),
        None => println!("{package} is installed, but brings no Vulkan driver in software"),
    }
    Ok(found)
}

/// The file that registers a driver.
pub fn find(driver: Driver) -> Option<PathBuf> {
    let files = driver.folders().iter().filter_map(|f| fs::read_dir(Path::new(f)).ok()).flatten().flatten();
    files.map(|f| f.path()).find(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(driver.file())))
}
