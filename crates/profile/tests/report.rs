//! The report is one small file that fetches nothing and shows no name as markup, and the summary says what the plan does.

use memfit::exec::Executor;
use memfit::nn::Optimizer;
use memfit::{CpuExecutor, Request, Training, ZooModel, survey_model};
use memfit_profile::html::{DifferenceTable, HtmlOptions, compare_html, html};
use memfit_profile::*;

/// The plan of a model in the least memory, which has the most to show.
fn smallest(name: &str, batch: usize) -> Profile {
    let cpu = CpuExecutor::new(2).unwrap();
    let (model, request) = (ZooModel::from_name(name).unwrap(), Request::new(batch));
    let training = Training::new(Optimizer::adam().update);
    let survey = survey_model(&model, &training, cpu.target(), &request).unwrap();
    let frontier = survey.frontier();
    let budget = frontier.last().map(|p| p.arena_bytes);
    let labels = Labels { model: name.into(), budget, frontier, ..Labels::default() };
    let mut profile = from_plan(&survey.plan(budget).unwrap(), &labels);
    profile.measured = Some(measured(&profile));
    profile
}

/// As if something had run: every launch, and one step in full on two threads.
fn measured(profile: &Profile) -> Measured {
    let times = |l: &Launch| KernelTimes {
        count: 7,
        mean_us: l.predicted_us,
        median_us: l.predicted_us,
        min_us: 1.0 / 3.0,
        max_us: 1e4 / 3.0,
    };
    let kernels = profile.programs.iter().map(|p| p.launches.iter().map(times).collect()).collect();
    let mut slices = Vec::new();
    for (program, micro_batch) in profile.step_runs() {
        for launch in 0..profile.programs[program].launches.len() {
            let begin_us = slices.len() as f64 / 3.0;
            let slice = |thread| Slice { program, launch, micro_batch, thread, begin_us, end_us: begin_us + 1.0 / 7.0 };
            slices.extend([0, 1].map(slice));
        }
    }
    Measured { kernels, slices, threads: vec!["main".into(), "worker".into()], ..Measured::default() }
}

#[test]
fn a_report_of_resnet50_is_under_a_megabyte() {
    let page = html(&smallest("resnet50", 16), &HtmlOptions::default());
    assert!(page.len() < 1_000_000, "{} bytes", page.len());
    assert!(page.len() > 100_000, "{} bytes cannot hold the launches and buffers", page.len());
}

#[test]
fn a_report_names_no_other_place() {
    let page = html(&smallest("digits", 32), &HtmlOptions::default());
    for word in ["http://", "https://", "src=", "@import", "url(", "/home/", "/root/", "fetch(", "XMLHttpRequest"] {
        assert!(!page.contains(word), "{word}");
    }
    assert!(page.contains("default-src 'none'"), "nor may it ask for one");
}

#[test]
fn a_report_has_the_path_of_a_run_only_where_the_profile_has_it() {
    let mut profile = smallest("digits", 32);
    assert!(!html(&profile, &HtmlOptions::default()).contains("\"path\""));
    profile.run.path = Some("runs/digits-1".into());
    assert!(html(&profile, &HtmlOptions::default()).contains("\"path\":\"runs/digits-1\""));
}

#[test]
fn names_that_are_markup_stay_text() {
    let bad = "</script><script>alert(1)</script><img src=x onerror=alert(2)>{{script}}";
    let mut profile = smallest("digits", 32);
    profile.run.model = bad.into();
    for program in &mut profile.programs {
        program.launches.iter_mut().for_each(|l| l.layer = bad.into());
        program.buffers.iter_mut().for_each(|b| b.layer = bad.into());
    }
    profile.peak.live.iter_mut().for_each(|e| e.layer = bad.into());
    let table = DifferenceTable { title: bad.into(), columns: vec![bad.into()], rows: vec![vec![bad.into()]] };
    let options = HtmlOptions { title: Some(bad.into()), ..HtmlOptions::default() };
    for page in [html(&profile, &options), compare_html(&profile, &profile, bad, &[table], &options)] {
        assert_eq!(page.matches("</script").count(), 2, "those of the data and of the program");
        assert_eq!(page.matches("<script").count(), 2);
        assert!(!page.contains("<img"));
    }
    assert!(!markdown(&profile).contains('<'));
}

#[test]
fn a_profile_without_launches_has_a_report() {
    let mut profile = smallest("digits", 32);
    (profile.programs, profile.peak, profile.measured) = (Vec::new(), Peak::default(), None);
    assert!(html(&profile, &HtmlOptions::default()).contains("digits, batch 32 · memfit"));
}

/// Numbers of its own, so that no text depends on a machine.
fn small() -> Profile {
    let launch = |op: &str, layer: &str, part, us, flops| Launch {
        op: op.into(),
        ops: op.into(),
        layer: layer.into(),
        part,
        live_bytes: 3 << 20,
        scratch_bytes: 0,
        scratch_offset: 0,
        flops,
        traffic_bytes: 1 << 20,
        predicted_us: us,
    };
    let entry = |layer: &str, class, bytes, recompute_ms| PeakEntry {
        buffer: None,
        layer: layer.into(),
        op: "relu".into(),
        ty: "f32[8,32]".into(),
        class,
        bytes,
        recompute_ms,
    };
    let program = Program {
        phase: "step".into(),
        repeats: 1,
        accumulator_bytes: 0,
        launches: vec![
            launch("conv2d", "conv1", Part::Forward, 200.0, 40_000_000),
            launch("relu", "a|b", Part::Backward, 50.0, 0),
        ],
        buffers: Vec::new(),
    };
    Profile {
        format: FORMAT.into(),
        version: VERSION,
        run: Run {
            model: "tiny".into(),
            batch: 8,
            accumulate: 1,
            device: "cpu".into(),
            memfit: "1.0.0".into(),
            ..Run::default()
        },
        memory: Memory {
            budget_bytes: Some(4 << 20),
            arena_bytes: 4 << 20,
            peak_bytes: 3 << 20,
            keep_all_bytes: 6 << 20,
            predicted_step_ms: 0.25,
            ..Memory::default()
        },
        states: Vec::new(),
        programs: vec![program],
        peak: Peak {
            program: 0,
            launch: 1,
            live: vec![
                entry("a|b", Class::Activations, 2 << 20, Some(0.2)),
                entry("w", Class::Parameters, 1 << 20, None),
            ],
        },
        tools: vec![ToolUse { tool: "recompute".into(), saved_bytes: 3 << 20, paid_ms: 0.05 }],
        frontier: Vec::new(),
        limits: Some(MachineLimits { gflops: 300.0, gbytes: 20.0 }),
        measured: None,
        pipeline: Some(Pipeline {
            limit_bytes: 1 << 20,
            peak_bytes: 1 << 19,
            step_waited_ms: 1.0,
            data_waited_ms: 1500.0,
            threads: 2,
        }),
        curves: Vec::new(),
    }
}

#[test]
fn the_summary_is_a_page_of_markdown() {
    insta::assert_snapshot!(markdown(&small()), @r"
    # tiny, batch 8

    **Peak 3.00 MiB of a budget of 4.00 MiB**, 50 % less than keeping everything (6.00 MiB); a step is predicted to take 250 µs.

    cpu, memfit 1.0.0

    | memory | |
    |---|---:|
    | arena, taken before the first step | 4.00 MiB |
    | most that is live at once | 3.00 MiB |
    | states | 0 B |
    | transient | 0 B |
    | keeping everything | 6.00 MiB |
    | no plan goes below | 0 B |

    ## The peak

    Kernel 2 of 2 in `step`: relu of a\|b (backward).

    | bytes | class | op | layer | type | to recompute |
    |---:|---|---|---|---|---:|
    | 2.00 MiB | activations | relu | a\|b | f32[8,32] | 200 µs |
    | 1.00 MiB | parameters | relu | w | f32[8,32] | – |

    ## What the planner did

    | tool | saved | paid |
    |---|---:|---:|
    | recompute | 3.00 MiB | 50.0 µs |

    ## Time of a step, predicted

    | op | kernels | time | share | GFLOP/s | GB/s |
    |---|---:|---:|---:|---:|---:|
    | conv2d | 1 | 200 µs | 80.0 % | 200.0 | 5.2 |
    | relu | 1 | 50.0 µs | 20.0 % | 0.0 | 21.0 |
    | *limits of the machine* | | | | 300.0 | 20.0 |

    ## Data pipeline

    At most 512 KiB of 1.00 MiB with 2 threads; training waited 1.00 ms for data, data waited 1.50 s for training.
    ");
}

#[test]
fn a_profile_of_a_loss_that_is_not_finite_reads_back() {
    let mut profile = smallest("digits", 32);
    let steps = [1.5, f32::NAN, f32::INFINITY].map(|loss| StepSample { loss, ..StepSample::default() });
    profile.measured.as_mut().unwrap().steps = steps.to_vec();
    let read = Profile::from_json(&profile.to_json()).unwrap().measured.unwrap();
    assert_eq!(read.steps[0].loss, 1.5);
    assert!(read.steps[1..].iter().all(|s| s.loss.is_nan()), "{:?}", read.steps);
}

#[test]
fn sizes_that_no_machine_has_are_a_contradiction() {
    let profile = smallest("digits", 32);
    let forge: [fn(&mut Profile); 4] = [
        |p| p.peak.live[0].bytes = u64::MAX,
        |p| p.programs[0].accumulator_bytes = u64::MAX,
        |p| p.programs[0].launches[0].scratch_bytes = u64::MAX,
        |p| p.memory.state_bytes = u64::MAX,
    ];
    for forge in forge {
        let mut forged = profile.clone();
        forge(&mut forged);
        let error = Profile::from_json(&forged.to_json()).unwrap_err();
        assert!(matches!(error, ProfileError::Contradiction(_)), "{error}");
    }
}
