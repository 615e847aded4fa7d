//! Plans as files: the same plan comes back, and a file that somebody changed is an error, never worse.

use memfit::exec::Executor;
use memfit::ir::op::StateClass;
use memfit::ir::{Graph, fingerprint, philox, text};
use memfit::nn::optim::Optimizer;
use memfit::plan::save::{Labels, SaveError, load, save};
use memfit::plan::{MicroBatch, Phase, Place, Segment, check_source};
use memfit::transform::StepGraph;
use memfit::{
    Clock, CpuExecutor, Engine, Options, Plan, Precision, Request, TensorView, Training, ZooModel, survey_model,
};
use memfit_test_effort::some;

fn training(precision: Precision) -> Training {
    Training { precision, ..Training::new(Optimizer::adam().update) }
}

fn labels() -> Labels {
    [("batch", "4"), ("odd \"name\"\n", "\u{1}")].map(|(k, v)| (k.into(), v.into())).into()
}

/// The fastest and the smallest plan.
fn plans(model: &ZooModel, training: &Training, request: &Request, cpu: &CpuExecutor) -> Vec<Plan> {
    let survey = survey_model(model, training, cpu.target(), request).expect("a survey");
    let smallest = survey.frontier().last().expect("a point").arena_bytes;
    [None, Some(smallest)].map(|budget| survey.plan(budget).expect("a plan")).into()
}

fn digits(request: &Request) -> Vec<Plan> {
    let model = ZooModel::from_name("digits").expect("in the zoo");
    plans(&model, &training(Precision::F32), request, &CpuExecutor::new(2).expect("threads"))
}

#[test]
fn every_model_of_the_zoo_comes_back_as_it_was_saved() {
    let cpu = CpuExecutor::new(2).expect("threads");
    for name in some(ZooModel::names()) {
        let model = ZooModel::from_name(name).expect("in the zoo");
        for precision in [Precision::F32, Precision::ALL[1]] {
            let request = Request { micro_batch: MicroBatch::Allow, ..Request::new(4) };
            for plan in plans(&model, &training(precision), &request, &cpu) {
                let saved = load(&save(&plan, &labels())).unwrap_or_else(|e| panic!("{name}: {e}"));
                assert_eq!(saved.labels, labels());
                assert!(saved.plan == plan, "{name}");
                let source = programs_of(&model, &training(precision), &plan);
                assert_eq!(check_source(&saved.plan, &source), Ok(()), "{name}");
                assert!(saved.for_target(cpu.target()).is_ok(), "{name}");
            }
        }
    }
}

/// What a plan is made of.
fn programs_of(model: &ZooModel, training: &Training, plan: &Plan) -> Vec<(Phase, StepGraph)> {
    memfit::train::programs(model, training, plan.batch, plan.micro_batch).expect("a model of the zoo")
}

/// A graph in which one line is another, as somebody who edits a file makes it.
fn edited(graph: &Graph, from: &str, to: &str) -> Graph {
    let text = text::print(graph);
    assert!(text.contains(from), "{from} is not in\n{text}");
    text::parse(&text.replacen(from, to, 1)).expect("a graph")
}

#[test]
fn a_plan_that_computes_something_else_is_told_by_what_is_different() {
    let model = ZooModel::from_name("digits").expect("in the zoo");
    let training = training(Precision::F32);
    let request = Request { micro_batch: MicroBatch::Exactly(2), ..Request::new(4) };
    for plan in digits(&request) {
        let source = programs_of(&model, &training, &plan);
        let check = |phase: Phase, from: &str, to: &str, expected: &[&str]| {
            let mut plan = plan.clone();
            let program = plan.programs.iter_mut().find(|p| p.phase == phase).expect("a program");
            program.graph = edited(&program.graph, from, to);
            let departure = check_source(&plan, &source).expect_err(to).to_string();
            expected.iter().for_each(|part| assert!(departure.contains(part), "{part}: {departure}"));
        };
        let decay = "weight_decay=0.9";
        check(Phase::Accumulate, "rate=0.25", "rate=0.75", &["accumulate", "rate=0.75", "rate=0.25", "dropout"]);
        check(Phase::Apply, "weight_decay=0.0", decay, &["apply", decay, "weight_decay=0.0"]);
        check(Phase::Eval, "output \"logits\"", "output \"other\"", &["eval", "the output \"other\"", "nothing"]);
        check(
            Phase::Accumulate,
            "init=constant(0.0)",
            "init=constant(3.0)",
            &["init=constant(3.0)", "init=constant(0.0)"],
        );
        let mut less = plan.clone();
        less.programs.retain(|p| p.phase != Phase::Eval);
        assert!(check_source(&less, &source).expect_err("no evaluation").to_string().contains("nothing where"));
    }
}

/// A plan with one thing changed by somebody who knows how to make a checksum.
fn check_change(what: &str, change: impl FnOnce(&mut Plan), expected: &str) {
    let cpu = CpuExecutor::new(2).expect("threads");
    let request = Request { micro_batch: MicroBatch::Exactly(2), ..Request::new(4) };
    let mut plan = digits(&request).remove(0);
    change(&mut plan);
    let result = load(&save(&plan, &labels())).and_then(|saved| saved.for_target(cpu.target()));
    match result {
        Err(SaveError::Broken(problem)) => assert!(problem.contains(expected), "{what}: {problem}"),
        other => panic!("{what}: {:?}", other.map(|_| "a plan")),
    }
}

#[test]
fn a_plan_that_does_not_hold_is_refused() {
    check_change("no micro-batch", |p| p.micro_batch = 0, "does not divide");
    check_change("an odd micro-batch", |p| p.micro_batch = 3, "does not divide");
    check_change("a huge batch", |p| p.batch = 1 << 62, "any machine");
    check_change("a huge segment", |p| p.state_bytes = u64::MAX, "any machine");
    check_change("a small segment", |p| p.transient_bytes -= 64, "outside of");
    check_change("another peak", |p| p.peak_bytes -= 1, "its peak");
    check_change("a negative time", |p| p.programs[0].launches[3].seconds = -1.0, "-1 seconds");
    let swap = |p: &mut Plan| {
        let size = p.states[0].place.size;
        let other = p.states[1..]
            .iter()
            .position(|s| s.place.size == size && s.class != StateClass::Accumulator)
            .expect("a slot of the optimizer")
            + 1;
        (p.states[0].place, p.states[other].place) = (p.states[other].place, p.states[0].place);
    };
    check_change("states exchanged", swap, "another idea of the state");
    check_change("a state outside", |p| p.states[1].place.offset = u64::MAX, "does not lie where it could");
    check_change("states together", |p| p.states[1].place.offset = p.states[0].place.offset, "overlap");
    check_change("a state less", |p| drop(p.states.remove(0)), "another idea of the state");
    check_change("another start", |p| p.states[0].init = memfit::ir::op::Init::Constant(7.0), "another idea");
    check_change("two programs of a kind", |p| p.programs[1].phase = p.programs[0].phase, "two accumulate programs");
    check_change("a step less", |p| drop(p.programs[0].launches.pop()), "not the kernels");
    check_change("a step twice", |p| p.programs[0].launches[1] = p.programs[0].launches[0].clone(), "not the kernels");
    check_change("another order", |p| p.programs[0].launches.reverse(), "is read, but is not there");
    check_change("a kernel of other nodes", |p| p.programs[0].launches[5].group.nodes.truncate(0), "not the kernels");
    let in_state = Some(Place { segment: Segment::State, offset: 0, size: 64 });
    check_change("scratch over a weight", |p| p.programs[0].launches[0].scratch = in_state, "memory of a state");
    let on_sums = Some(Place { segment: Segment::Transient, offset: 0, size: 64 });
    check_change("scratch over a sum", |p| p.programs[0].launches[0].scratch = on_sums, "memory of a state");
    check_change(
        "an unknown value dies",
        |p| p.programs[0].launches[0].dies = vec![memfit::ir::ValueId(1 << 30)],
        "no value",
    );
    check_change("an unknown clone", |p| p.programs[0].clones = vec![memfit::ir::NodeId(1 << 30)], "no node");
    check_change("an unknown end", |p| p.programs[0].forward_end = Some(memfit::ir::NodeId(1 << 30)), "no node");
    check_change("another device's kernels", |p| p.fusion.max_operands = 1 << 20, "for another device");
    check_change("a place less", |p| p.programs[0].places.truncate(9), "places");
    let overlap = |p: &mut Plan| {
        let (_, input) = p.programs[0].graph.inputs().next().expect("an input");
        p.programs[0].places[input.index()].as_mut().expect("a place").offset = 0;
    };
    check_change("a value over a sum", overlap, "memory of a state");
}

#[test]
fn files_that_are_no_plans_are_told() {
    let text = save(&digits(&Request::new(4))[0], &labels());
    assert!(matches!(load(""), Err(SaveError::NotAPlan(_))));
    assert!(matches!(load("{}"), Err(SaveError::NotAPlan(p)) if p.contains("memfit")));
    assert!(matches!(load(&text[..text.len() / 2]), Err(SaveError::NotAPlan(p)) if p.contains("line")));
    assert_eq!(load(&text.replace("\"format\":2", "\"format\":3")), Err(SaveError::Format { found: 3 }));
    assert_eq!(load(&text.replace("\"micro_batch\":4", "\"micro_batch\":2")), Err(SaveError::Changed));
}

/// A file that an older memfit wrote: its plan does not say where the forward pass ends nor what its kernels are joined by.
#[test]
fn a_plan_of_the_first_format_is_read_and_written_in_the_present_one() {
    let old = include_str!("../files/plan_format_1.json");
    assert!(old.contains("\"format\":1") && !old.contains("forward_end") && !old.contains("fusion"));
    let saved = load(old).expect("an old plan");
    let program = saved.plan.program(memfit::Phase::Step).expect("a step");
    let end = program.forward_end.expect("a step has a backward pass");
    let loss = program.graph.output("loss").expect("a step gives its loss");
    assert_eq!(end, program.graph.producer(loss));
    assert_eq!(saved.plan.fusion, CpuExecutor::new(1).expect("a thread").target().fusion());
    assert_eq!(load(&save(&saved.plan, &saved.labels)).expect("the same plan").plan, saved.plan);
    assert_eq!(load(&old.replace("\"micro_batch\":4", "\"micro_batch\":2")), Err(SaveError::Changed));
}

/// Numbers that are the same in every run.
fn random(count: usize) -> impl Iterator<Item = f32> {
    philox::uniform(1, "mutations", count).map(|x| (x + 1.0) / 2.0)
}

#[test]
fn no_byte_can_be_changed_unseen() {
    let plan = digits(&Request::new(4)).remove(1);
    let text = save(&plan, &labels());
    let numbers: Vec<f32> = random(1500).collect();
    for [at, what, byte] in numbers.as_chunks::<3>().0 {
        let mut bytes = text.clone().into_bytes();
        let at = (at * (bytes.len() - 1) as f32) as usize;
        let byte = (byte * 127.0) as u8;
        match (what * 3.0) as u8 {
            0 => bytes[at] = byte,
            1 => bytes.insert(at, byte),
            _ => drop(bytes.remove(at)),
        }
        let Ok(changed) = String::from_utf8(bytes) else { continue };
        // Spaces between things, and a version, say nothing about the plan.
        if let Ok(saved) = load(&changed) {
            assert!(saved.plan == plan && saved.labels == labels(), "byte {at}");
        }
    }
}

/// Trains a step with whatever a changed file turns out to be. It may fail; it may not panic.
fn run(text: &str) -> bool {
    let cpu = CpuExecutor::new(1).expect("a thread");
    let Ok(plan) = load(text).and_then(|saved| saved.for_target(cpu.target())) else { return false };
    // What would only take long.
    if plan.arena_bytes() > 1 << 28 {
        return true;
    }
    let Ok(mut engine) = Engine::new(cpu, plan, Options { poison: true, ..Options::default() }) else { return true };
    let (x, y) = (vec![0.5f32; 4 * 64], vec![3i32; 4]);
    let batch = [("x", TensorView::f32(&[4, 8, 8, 1], &x)), ("y", TensorView::i32(&[4], &y))];
    let _ = engine.init(1).and_then(|()| engine.step(&batch, 1e-3, Clock::default()));
    true
}

#[test]
fn a_forged_number_never_panics() {
    let model = ZooModel::from_name("digits").expect("in the zoo");
    let cpu = CpuExecutor::new(1).expect("a thread");
    let request = Request { micro_batch: MicroBatch::Exactly(2), ..Request::new(4) };
    let text = save(&plans(&model, &training(Precision::F32), &request, &cpu)[0], &labels());
    let (head, body) = text.split_once("\"run\":").expect("a body");
    let body = format!("\"run\":{}", body.strip_suffix("\n}\n").expect("an end"));
    let head = &head[..head.find("\"checksum\"").expect("a checksum")];
    let digits: Vec<usize> = body.bytes().enumerate().filter(|(_, b)| b.is_ascii_digit()).map(|(i, _)| i).collect();
    let forge = |body: &str| format!("{head}\"checksum\":\"{:016x}\",\n{body}\n}}\n", fingerprint(body));
    assert!(run(&forge(&body)), "unchanged, it runs");
    let numbers: Vec<f32> = random(3000).collect();
    let mut ran = 0;
    for [at, digit] in numbers.as_chunks::<2>().0 {
        let mut bytes = body.clone().into_bytes();
        bytes[digits[(at * (digits.len() - 1) as f32) as usize]] = b'0' + (digit * 9.99) as u8;
        let forged = forge(&String::from_utf8(bytes).expect("digits"));
        ran += run(&forged) as usize;
    }
    assert!(ran > 10, "some forgeries must get as far as the kernels, but only {ran} did");
}
