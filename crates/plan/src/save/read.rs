//! From the form of a plan to the plan. Every number is checked before it is used as an index.

use std::collections::HashMap;

use memfit_ir::{Graph, NodeId, Op, Replica, ValueId, text, verify};
use memfit_transform::group::Prologues;
use memfit_transform::{Fusion, Group};
use serde::Deserialize;

use super::{FORMAT, Labels, SaveError, SavedPlan};
use crate::passes::group;
use crate::types::{Launch, MadeFor, Phase, Place, Plan, Program, Saving, Segment, StateSlot, Tool};

/// The head alone: a form that is not known cannot be read further.
#[derive(Deserialize)]
pub struct Head {
    memfit: String,
    pub format: u64,
    pub checksum: String,
}

#[derive(Deserialize)]
struct Form {
    run: Labels,
    /// Not in files of older versions.
    made_for: Option<MadeForForm>,
    /// Not where one trains alone.
    replica: Option<ReplicaForm>,
    numbers: Numbers,
    fusion: Option<FusionForm>,
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
    /// Only where it is something.
    #[serde(default)]
    staging_bytes: u64,
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
struct ReplicaForm {
    lanes: usize,
    count: usize,
    rank: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProgramForm {
    phase: String,
    graph: Vec<String>,
    steps: Vec<LaunchForm>,
    places: Vec<Option<PlaceForm>>,
    clones: Vec<u32>,
    forward_end: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FusionForm {
    max_nodes: usize,
    max_operands: usize,
    prologues: Option<ProloguesForm>,
    max_reductions: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProloguesForm {
    max_columns: usize,
    max_filter: usize,
    many_columns: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LaunchForm {
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

/// The plan of a file, and what the file says of itself.
pub fn parse_file(text: &str) -> Result<(SavedPlan, Head), SaveError> {
    let not_a_plan = |e: serde_json::Error| SaveError::NotAPlan(e.to_string());
    let head: Head = serde_json::from_str(text).map_err(not_a_plan)?;
    if !(1..=FORMAT).contains(&head.format) {
        return Err(SaveError::Format { found: head.format });
    }
    let form: Form = serde_json::from_str(text).map_err(not_a_plan)?;
    let labels = form.run.clone();
    let plan = plan(form, head.format).map_err(SaveError::Broken)?;
    Ok((SavedPlan { version: head.memfit.clone(), labels, plan }, head))
}

fn plan(form: Form, format: u64) -> Read<Plan> {
    let n = form.numbers;
    let fusion = match (format, form.fusion) {
        (1, _) => fusion_in_format_1(&form.programs),
        (_, Some(form)) => fusion(form)?,
        (_, None) => return Err("it does not say what its kernels are joined by".into()),
    };
    let programs = form.programs.into_iter().map(|p| program(p, &fusion, format)).collect::<Read<_>>()?;
    let savings = n.savings.iter().map(|(name, bytes)| Ok(Saving { tool: tool(name)?, bytes: *bytes }));
    Ok(Plan {
        batch: n.batch,
        micro_batch: n.micro_batch,
        replica: replica(form.replica)?,
        states: states(&form.states, &form.state_places)?,
        programs,
        fusion,
        state_bytes: n.state_bytes,
        transient_bytes: n.transient_bytes,
        staging_bytes: n.staging_bytes,
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

fn replica(form: Option<ReplicaForm>) -> Read<Replica> {
    let Some(ReplicaForm { lanes, count, rank }) = form else { return Ok(Replica::ALONE) };
    let replica = Replica { lanes, count, rank };
    if replica.exists() {
        Ok(replica)
    } else {
        Err(format!("there is no replica {rank} of {count} with {lanes} lanes"))
    }
}

fn made_for(form: MadeForForm) -> MadeFor {
    MadeFor { device: form.device, instruction_set: form.instruction_set, threads: form.threads }
}

fn parse_place(form: PlaceForm) -> Place {
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
            Ok(StateSlot { name: s.name.clone(), class: s.class, ty, init: s.init, place: parse_place(*form) })
        }
        other => Err(format!("{} stands among the states", other.name())),
    };
    places.iter().enumerate().map(slot).collect()
}

fn program(form: ProgramForm, fusion: &Fusion, format: u64) -> Read<Program> {
    let phase = Phase::from_name(&form.phase).ok_or_else(|| format!("there is no program \"{}\"", form.phase))?;
    let problem = |e: String| format!("the {} program: {e}", phase.name());
    let graph = graph(&form.graph).map_err(problem)?;
    if form.places.len() != graph.values().len() {
        let (values, places) = (graph.values().len(), form.places.len());
        return Err(problem(format!("it has {values} values but {places} places")));
    }
    let launches = launches(&graph, fusion, form.steps).map_err(problem)?;
    let places = form.places.into_iter().map(|p| p.map(parse_place)).collect();
    let known = |id: u32| {
        if (id as usize) < graph.nodes().len() {
            Ok(NodeId(id))
        } else {
            Err(problem(format!("there is no node {id}")))
        }
    };
    let clones = form.clones.into_iter().map(known).collect::<Read<_>>()?;
    let forward_end = match format {
        1 => forward_end_in_format_1(&graph),
        _ => form.forward_end.map(known).transpose()?,
    };
    Ok(Program { phase, graph, forward_end, launches, places, clones })
}

/// Where the forward pass ends, for files of format 1, which do not say it: at the node that makes the output "loss", or
/// where there is none, at what is added to the sum of that name, less the factor that is the micro-batch's share.
fn forward_end_in_format_1(graph: &Graph) -> Option<NodeId> {
    if graph.donations.is_empty() {
        return None;
    }
    let added_to_sum = || {
        let sum = graph.state("accumulate/loss")?;
        let new = graph.donations.iter().find(|d| d.old == sum)?.new;
        let part = *graph.node(graph.producer(new)).inputs.iter().find(|&&v| v != sum)?;
        let is_scaled = matches!(graph.producer_op(part), Op::Binary(_));
        Some(if is_scaled { graph.node(graph.producer(part)).inputs[0] } else { part })
    };
    let loss = graph.output("loss").or_else(added_to_sum)?;
    (!matches!(graph.producer_op(loss), Op::State(_))).then(|| graph.producer(loss))
}

fn fusion(form: FusionForm) -> Read<Fusion> {
    let FusionForm { max_nodes, max_operands, prologues, max_reductions } = form;
    if max_nodes > Fusion::MOST_NODES {
        return Err(format!("its kernels join up to {max_nodes} nodes, and {} are the most", Fusion::MOST_NODES));
    }
    let prologues = prologues.map(|p| {
        let ProloguesForm { max_columns, max_filter, many_columns } = p;
        Prologues { max_columns, max_filter, many_columns }
    });
    Ok(Fusion { max_nodes, max_operands, prologues, max_reductions })
}

/// What kernels were joined by, for files of format 1, which do not say it: there was but one policy, and the other was to
/// join nothing.
fn fusion_in_format_1(programs: &[ProgramForm]) -> Fusion {
    if programs.iter().flat_map(|p| &p.steps).all(|s| s.nodes.len() == 1) {
        return Fusion::NONE;
    }
    let prologues = Some(Prologues { max_columns: 2048, max_filter: 1 << 20, many_columns: 512 });
    Fusion { max_nodes: 16, max_operands: usize::MAX, prologues, max_reductions: 2 }
}

/// The launches, each of which must be a group that this graph is cut into: a kernel runs nothing else.
fn launches(graph: &Graph, fusion: &Fusion, forms: Vec<LaunchForm>) -> Read<Vec<Launch>> {
    let groups = group(graph, fusion);
    let count = groups.len();
    let mut by_nodes: HashMap<Vec<NodeId>, Group> = groups.into_iter().map(|g| (g.nodes.clone(), g)).collect();
    // Each group once, so that what is left out is seen as what stands twice.
    let taken = forms.iter().map(|f| by_nodes.remove(&f.nodes.iter().map(|&n| NodeId(n)).collect::<Vec<_>>()));
    match taken.collect::<Option<Vec<Group>>>().filter(|groups| groups.len() == count) {
        Some(groups) => groups.into_iter().zip(forms).map(|(g, form)| launch(graph, g, form)).collect(),
        None => Err("its steps are not the kernels that this version of memfit makes of its graph".into()),
    }
}

fn launch(graph: &Graph, group: Group, form: LaunchForm) -> Read<Launch> {
    let is_value = |v: u32| (v as usize) < graph.values().len();
    let dies =
        form.dies.iter().map(|&v| if is_value(v) { Ok(ValueId(v)) } else { Err(format!("there is no value %{v}")) });
    Ok(Launch {
        group,
        scratch: form.scratch.map(parse_place),
        dies: dies.collect::<Read<_>>()?,
        live_bytes: form.live_bytes,
        seconds: form.seconds,
    })
}
