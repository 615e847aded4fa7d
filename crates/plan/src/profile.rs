//! The cost profile: a few rounded constants of a device. Defaults ship with memfit, so that planning is reproducible.

/// Constants from which step times are predicted.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    pub name: String,
    /// Contractions: 10⁹ floating-point operations a second.
    pub gflops: f64,
    /// Memory: 10⁹ bytes a second.
    pub gbytes: f64,
    /// Starting a kernel, in microseconds.
    pub launch_us: f64,
}

impl Default for Profile {
    /// Two AVX-512 cores with 18 GB/s of memory bandwidth.
    fn default() -> Self {
        Profile { name: "default".into(), gflops: 150.0, gbytes: 18.0, launch_us: 3.0 }
    }
}

impl Profile {
    /// FNV-1a of the constants; part of the plan.
    pub fn hash(&self) -> u64 {
        let text = format!("{} {} {} {}", self.name, self.gflops, self.gbytes, self.launch_us);
        memfit_ir::philox::name_key(&text)
    }
}
