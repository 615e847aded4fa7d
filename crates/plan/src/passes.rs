//! What the planner does to the graphs of a program, in the order it happens, with the reason for each. What makes the
//! graphs is a list of its own, in `memfit-transform`. Nothing else in this crate rewrites or groups a graph: it all goes
//! through here.

pub use memfit_transform::group::group;
pub use memfit_transform::{copy_state, recompute, save_masks};

/// One thing that is done to a graph between a source and a plan.
pub struct Pass {
    pub name: &'static str,
    /// Why it runs, and why here.
    pub reason: &'static str,
}

pub const PASSES: [Pass; 4] = [SAVE_MASKS, RECOMPUTE, COPY_STATE, GROUP];

const SAVE_MASKS: Pass = Pass {
    name: "save_masks",
    reason: "a bit is kept instead of an activation where the backward pass asks for no more; before anything counts bytes",
};
const RECOMPUTE: Pass = Pass {
    name: "recompute",
    reason: "once for each candidate: what to save and what to recompute is what candidates differ in",
};
const COPY_STATE: Pass = Pass {
    name: "copy_state",
    reason: "a state that is overwritten while somebody still reads it is copied; only an order of execution shows which",
};
const GROUP: Pass = Pass {
    name: "group",
    reason: "which nodes one kernel runs, as far as the target fuses; anew whenever a pass before it changed the graph",
};

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Every file of a folder and below.
    fn each_file(folder: &Path, check: &mut dyn FnMut(&Path, &str)) {
        for entry in std::fs::read_dir(folder).expect("a folder of this crate") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                each_file(&path, check);
            } else {
                check(&path, &std::fs::read_to_string(&path).expect("a file of this crate"));
            }
        }
    }

    #[test]
    fn no_other_file_takes_a_pass_from_where_it_is_made() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        each_file(&source, &mut |path, text| {
            if path.ends_with("passes.rs") {
                return;
            }
            // Statements, whether they stand in one line or in several.
            for import in text.split(';').filter_map(|s| s.split_once("use memfit_transform::").map(|(_, names)| names))
            {
                let mut names =
                    import.split([',', '{', '}', ' ', '\n']).map(|path| path.rsplit("::").next().unwrap_or(path));
                let taken = names.find(|name| PASSES.iter().any(|pass| pass.name == *name));
                assert_eq!(taken, None, "{}: taken past the list of passes", path.display());
            }
        });
    }
}
