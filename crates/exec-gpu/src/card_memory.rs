//! What can be known of a GPU's memory without taking any. Drivers differ in what they say, and some say nothing: then it is
//! unknown, which is no error. Nothing here is kept: each call asks anew.

use cubecl::wgpu::wgpu::Adapter;

use crate::adapters::Kind;

/// In bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CardMemory {
    /// What there is.
    pub total: Option<u64>,
    /// What programs hold of it, this one included.
    pub used: Option<u64>,
}

impl CardMemory {
    /// What the first source that knows it says: the vendor's library or driver, which see all programs, then the graphics API.
    /// A rasteriser in software has the host's memory, whatever it says.
    pub fn ask(adapter: &Adapter, kind: Kind) -> CardMemory {
        if kind == Kind::Software {
            return CardMemory::default();
        }
        let bus = adapter.get_info().device_pci_bus_id;
        let known = nvml(&bus).or_else(|| amdgpu(&bus)).unwrap_or_default();
        let api = graphics_api(adapter).unwrap_or_default();
        CardMemory { total: known.total.or(api.total), used: known.used.or(api.used) }
    }
}

/// NVIDIA's management library, which is loaded when it is asked for: without its driver there is none.
#[cfg(target_os = "linux")]
fn nvml(bus: &str) -> Option<CardMemory> {
    let library = nvml_wrapper::Nvml::init().ok()?;
    let memory = library.device_by_pci_bus_id(bus).ok()?.memory_info().ok()?;
    Some(CardMemory { total: Some(memory.total), used: Some(memory.total.saturating_sub(memory.free)) })
}

#[cfg(not(target_os = "linux"))]
fn nvml(_: &str) -> Option<CardMemory> {
    None
}

/// What AMD's driver in the kernel says of a card of its own.
#[cfg(target_os = "linux")]
fn amdgpu(bus: &str) -> Option<CardMemory> {
    if bus.is_empty() {
        return None;
    }
    let folder = std::path::Path::new("/sys/bus/pci/devices").join(bus.to_ascii_lowercase());
    let number = |file: &str| std::fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok();
    Some(CardMemory { total: Some(number("mem_info_vram_total")?), used: number("mem_info_vram_used") })
}

#[cfg(not(target_os = "linux"))]
fn amdgpu(_: &str) -> Option<CardMemory> {
    None
}

/// The largest heap of the device's own, and what the driver would still give of it, where it has `VK_EXT_memory_budget`.
#[cfg(not(target_vendor = "apple"))]
fn graphics_api(adapter: &Adapter) -> Option<CardMemory> {
    use ash::vk;
    use cubecl::wgpu::wgpu::hal::api::Vulkan;
    // SAFETY: nothing of the adapter is destroyed or kept.
    let hal = unsafe { adapter.as_hal::<Vulkan>() }?;
    let instance = hal.shared_instance();
    let (vulkan, card) = (instance.raw_instance(), hal.raw_physical_device());
    // SAFETY: the card is one of this instance, which lives as long as the adapter.
    let extensions = unsafe { vulkan.enumerate_device_extension_properties(card) }.unwrap_or_default();
    let has_budget = instance.instance_api_version() >= vk::API_VERSION_1_1
        && extensions.iter().any(|e| e.extension_name_as_c_str() == Ok(ash::ext::memory_budget::NAME));
    let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
    let heaps = if has_budget {
        let mut all = vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut budget);
        // SAFETY: as above, and the extension whose structure is chained is there.
        unsafe { vulkan.get_physical_device_memory_properties2(card, &mut all) };
        all.memory_properties
    } else {
        // SAFETY: as above.
        unsafe { vulkan.get_physical_device_memory_properties(card) }
    };
    let own = heaps.memory_heaps.iter().take(heaps.memory_heap_count as usize).enumerate();
    let own = own.filter(|(_, heap)| heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL));
    let (i, heap) = own.max_by_key(|(_, heap)| heap.size)?;
    let used = has_budget.then(|| heap.size.saturating_sub(budget.heap_budget[i]));
    Some(CardMemory { total: Some(heap.size), used })
}

#[cfg(target_vendor = "apple")]
fn graphics_api(_: &Adapter) -> Option<CardMemory> {
    None
}
