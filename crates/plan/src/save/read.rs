//! From the form of a plan to the plan. Every number is checked before it is used as an index.

use std::collections::HashMap;

use memfit_ir::{Graph, NodeId, Op, ValueId, text, verify};
use memfit_transform::Group;
use memfit_transform::group::{Grouping, group};
use serde::Deserialize;

use super::{FORMAT, Labels, SaveError, Saved};
use crate::types::{MadeFor, Phase, Place, Plan, Program, Saving, Segment, StateSlot, Step, Tool};

/// The head alone: a form that is not known cannot be read further.
#[derive(Deserialize)]
struct Head {
    memfit: String,
    format: u64,
    checksum: String,
}

#[derive(Deserialize)]
struct Form {
    run: Labels,
    /// Not in files of older versions.
    made_for: Option<MadeForForm>,
    numbers: Numbers,
    states: Vec<String>,
    state_places: Vec<PlaceForm>,
    programs: Vec<ProgramForm>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Numbers {
    batch: usize,
    micro_batch: usize,
    state_bytes: u64,
    transient_bytes: u64,
    peak_bytes: u64,
    keep_all_bytes: u64,
    lower_bound_bytes: u64,
    recomputed_ops: usize,
    savings: Vec<(String, i64)>,
    predicted_step_seconds: f64,
    fastest_step_seconds: f64,
    /// The hash of the cost model, by its first name.
    profile: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MadeForForm {
    device: String,
    instruction_set: String,
    threads: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProgramForm {
    phase: String,
    graph: Vec<String>,
    steps: Vec<StepForm>,
    places: Vec<Option<PlaceForm>>,
    clones: Vec<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StepForm {
    nodes: Vec<u32>,
    scratch: Option<PlaceForm>,
    dies: Vec<u32>,
    live_bytes: u64,
    seconds: f64,
}

type PlaceForm = (SegmentForm, u64, u64);

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SegmentForm {
    State,
    Transient,
}

type Read<T> = Result<T, String>;

/// The plan of a file, and the checksum that the file says it has.
pub fn read(text: &str) -> Result<(Saved, String), SaveError> {
    let not_a_plan = |e: serde_json::Error| SaveError::NotAPlan(e.to_string());
    let head: Head = serde_json::from_str(text).map_err(not_a_plan)?;
    if head.format != FORMAT as u64 {
        return Err(SaveError::Format { found: head.format });
    }
    let form: Form = serde_json::from_str(text).map_err(not_a_plan)?;
    let labels = form.run.clone();
    let plan = plan(form).map_err(SaveError::Broken)?;
    Ok((Saved { version: head.memfit, labels, plan }, head.checksum))
}

fn plan(form: Form) -> Read<Plan> {
    let n = form.numbers;
    let savings = n.savings.iter().map(|(name, bytes)| Ok(Saving { tool: tool(name)?, bytes: *bytes }));
    Ok(Plan {
        batch: n.batch,
        micro_batch: n.micro_batch,
        states: states(&form.states, &form.state_places)?,
        programs: form.programs.into_iter().map(program).collect::<Read<_>>()?,
        state_bytes: n.state_bytes,
        transient_bytes: n.transient_bytes,
        peak_bytes: n.peak_bytes,
        keep_all_bytes: n.keep_all_bytes,
        lower_bound_bytes: n.lower_bound_bytes,
        recomputed_ops: n.recomputed_ops,
        savings: savings.collect::<Read<_>>()?,
        predicted_step_seconds: n.predicted_step_seconds,
        fastest_step_seconds: n.fastest_step_seconds,
        cost_model_hash: u64::from_str_radix(&n.profile, 16)
            .map_err(|_| "the hash of its cost model is no number".to_string())?,
        made_for: form.made_for.map(made_for),
    })
}

fn tool(name: &str) -> Read<Tool> {
    Tool::from_name(name).ok_or_else(|| format!("there is no tool \"{name}\""))
}

fn made_for(form: MadeForForm) -> MadeFor {
    MadeFor { device: form.device, instruction_set: form.instruction_set, threads: form.threads }
}

fn place(form: PlaceForm) -> Place {
    let segment = match form.0 {
        SegmentForm::State => Segment::State,
        SegmentForm::Transient => Segment::Transient,
    };
    Place { segment, offset: form.1, size: form.2 }
}

fn graph(lines: &[String]) -> Read<Graph> {
    // A line is one statement: what hides a line end in it was not written by us.
    if let Some(line) = lines.iter().find(|l| l.contains('\n')) {
        return Err(format!("{line:?} is more than one line"));
    }
    let graph = text::parse(&lines.join("\n")).map_err(|e| e.to_string())?;
    verify(&graph).map_err(|e| e.to_string())?;
    Ok(graph)
}

fn states(lines: &[String], places: &[PlaceForm]) -> Read<Vec<StateSlot>> {
    let graph = graph(lines).map_err(|e| format!("states: {e}"))?;
    if graph.nodes().len() != places.len() {
        return Err(format!("there are {} states but {} places for them", graph.nodes().len(), places.len()));
    }
    let slot = |(i, form): (usize, &PlaceForm)| match &graph.nodes()[i].op {
        Op::State(s) => {
            let ty = graph.ty(graph.nodes()[i].outputs[0]).clone();
            Ok(StateSlot { name: s.name.clone(), class: s.class, ty, init: s.init, place: place(*form) })
        }
        other => Err(format!("{} stands among the states", other.name())),
    };
    places.iter().enumerate().map(slot).collect()
}

const PHASES: [Phase; 5] = [Phase::Step, Phase::Accumulate, Phase::Apply, Phase::Eval, Phase::Checkpoint];

fn program(form: ProgramForm) -> Read<Program> {
    let phase = PHASES.into_iter().find(|p| p.name() == form.phase);
    let phase = phase.ok_or_else(|| format!("there is no program \"{}\"", form.phase))?;
    let problem = |e: String| format!("the {} program: {e}", phase.name());
    let graph = graph(&form.graph).map_err(problem)?;
    if form.places.len() != graph.values().len() {
        let (values, places) = (graph.values().len(), form.places.len());
        return Err(problem(format!("it has {values} values but {places} places")));
    }
    let steps = steps(&graph, form.steps).map_err(problem)?;
    let places = form.places.into_iter().map(|p| p.map(place)).collect();
    let clones = form.clones.iter().map(|&id| match (id as usize) < graph.nodes().len() {
        true => Ok(NodeId(id)),
        false => Err(problem(format!("there is no node {id}"))),
    });
    let clones = clones.collect::<Read<_>>()?;
    Ok(Program { phase, graph, steps, places, clones })
}

/// The steps, each of which must be a group that this graph is cut into: a kernel runs nothing else.
fn steps(graph: &Graph, forms: Vec<StepForm>) -> Read<Vec<Step>> {
    for grouping in [Grouping::Fused, Grouping::Single] {
        let groups = group(graph, grouping);
        if groups.len() != forms.len() {
            continue;
        }
        let mut by_nodes: HashMap<Vec<NodeId>, Group> = groups.into_iter().map(|g| (g.nodes.clone(), g)).collect();
        // Each group once, so that what is left out is seen as what stands twice.
        let taken: Option<Vec<Group>> =
            forms.iter().map(|f| by_nodes.remove(&f.nodes.iter().map(|&n| NodeId(n)).collect::<Vec<_>>())).collect();
        let Some(groups) = taken else { continue };
        return groups.into_iter().zip(forms).map(|(g, form)| step(graph, g, form)).collect();
    }
    Err("its steps are not the kernels that this version of memfit makes of its graph".into())
}

fn step(graph: &Graph, group: Group, form: StepForm) -> Read<Step> {
    let dies = form.dies.iter().map(|&v| match (v as usize) < graph.values().len() {
        true => Ok(ValueId(v)),
        false => Err(format!("there is no value %{v}")),
    });
    Ok(Step {
        group,
        scratch: form.scratch.map(place),
        dies: dies.collect::<Read<_>>()?,
        live_bytes: form.live_bytes,
        seconds: form.seconds,
    })
}
