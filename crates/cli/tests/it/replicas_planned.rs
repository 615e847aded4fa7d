//! What is planned, warned of and told of replicas through the command line, before they train and when they have.

use serde_json::Value;

use crate::common::{Scratch, check_error, command, event, events, memfit, stdout};

const SHARED: [&str; 2] = ["--replicas", "2"];

fn stderr(args: &[&str]) -> String {
    let output = memfit(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn number(event: &Value, key: &str) -> u64 {
    event[key].as_u64().unwrap_or_else(|| panic!("{key}: {event}"))
}

#[test]
fn each_replica_is_planned_against_its_own_part() {
    for parts in ["3MiB,700KiB", "700KiB,3MiB"] {
        let small = if parts.starts_with("700") { "replica 0: " } else { "replica 1: " };
        check_error(
            &[&["plan", "--logical", parts][..], &SHARED].concat(),
            3,
            &[small, "no plan can fit", "--logical"],
        );
    }
    check_error(&["plan", "--replicas", "3", "--logical", "3MiB,3MiB"], 2, &["replica 2 has no device of its own"]);
    let plan = event(&[&["plan", "--logical", "3MiB,2200KiB"][..], &SHARED].concat());
    // The one with the least left is shown, and what each takes of its part.
    assert_eq!((plan["replicas"]["rank"].as_u64(), plan["device"].as_str()), (Some(1), Some("cpu:0/1")));
    let each = plan["replicas"]["each"].as_array().expect("a list");
    let devices: Vec<&str> = each.iter().filter_map(|replica| replica["device"].as_str()).collect();
    assert_eq!(devices, ["cpu:0/0", "cpu:0/1"]);
    assert!(each.iter().all(|replica| number(replica, "device_bytes") <= number(replica, "budget_bytes")));
    let page = stdout(&memfit(&[&["plan", "--logical", "3MiB,2200KiB"][..], &SHARED].concat()));
    assert!(page.contains("cpu:0/0") && page.contains("cpu:0/1"), "{page}");
}

#[test]
fn replicas_of_two_models_are_planned_against_their_own_parts() {
    let folder = Scratch::new("replicas-planned-two");
    let file = |name: &str| folder.write(&format!("{name}.toml"), "[model]\nname = \"digits\"\n");
    let (a, b) = (file("a"), file("b"));
    let plan = |parts: &str| events(&[&["plan", &a, &b, "--logical", parts], &SHARED[..]].concat());
    let (code, told) = plan("8MiB,8MiB");
    assert_eq!(code, 0, "{told:?}");
    assert_eq!(told.iter().filter_map(|e| e["run"].as_str()).collect::<Vec<_>>(), ["a", "b"]);
    for parts in ["8MiB,1MiB", "1MiB,8MiB"] {
        let (code, told) = plan(parts);
        assert_eq!(code, 3, "{parts}: {told:?}");
    }
    // Where all have the same, the one that holds the most is planned.
    let (_, told) = events(&["plan", &a, &b, "--replicas", "3", "--shard", "optimizer"]);
    let alone = event(&["plan", &a, "--replicas", "3", "--shard", "optimizer"]);
    assert_eq!(told[0]["replicas"]["rank"], alone["replicas"]["rank"]);
    assert_eq!(told[0]["state_bytes"], alone["state_bytes"]);
}

#[test]
fn the_largest_batch_is_shared_evenly_unless_lanes_are_said() {
    let largest = |options: &[&str]| event(&[&["plan", "--max-batch", "--budget", "3MiB"], options].concat());
    for (options, lanes) in [
        (&["--replicas", "3"][..], 3),
        (&["--replicas", "3", "--lanes", "5"], 5),
        (&["--replicas", "48"], 48),
        (&["--replicas", "2", "--logical", "5MiB,4MiB"], 2),
    ] {
        let found = largest(options);
        let tried = found["tried"].as_array().expect("a list");
        assert!(tried.iter().all(|tried| number(tried, "batch").is_multiple_of(lanes)), "{options:?}: {tried:?}");
        assert_eq!(number(&found["plan"]["replicas"], "lanes"), lanes, "{options:?}");
        // What it says is what is planned by itself then; a batch that is larger by one for each lane does not fit.
        let batch = number(&found, "batch");
        let plan = |batch: u64| {
            let batch = batch.to_string();
            events(&[&["plan", "--micro-batch", "off", "--budget", "3MiB", "--batch", &batch], options].concat())
        };
        let (code, told) = plan(batch);
        assert_eq!((code, &told[0]["arena_bytes"]), (0, &found["plan"]["arena_bytes"]), "{options:?}");
        assert_eq!(plan(batch + lanes).0, 3, "{options:?}");
    }
}

#[test]
fn a_batch_that_is_proposed_fits_with_the_lanes_that_it_then_has() {
    // 32 samples are 4 lanes of 3 replicas; another batch has 3.
    let plan = |budget: u64, options: &[&str]| {
        let budget = budget.to_string();
        events(&[&["plan", "--replicas", "3", "--budget", &budget], options].concat())
    };
    let (_, refused) = plan(600 << 10, &[]);
    let little = number(&refused[0]["certificate"], "needed_bytes") - 1;
    let (code, told) = plan(little, &[]);
    assert_eq!(code, 3, "{told:?}");
    let fixes = told[0]["certificate"]["fixes"].as_array().cloned().unwrap_or_default();
    let batch = fixes.iter().find_map(|fix| fix["change"].as_str()?.strip_prefix("--batch ").map(String::from));
    let batch = batch.unwrap_or_else(|| panic!("{fixes:?}"));
    assert_eq!(batch.parse::<usize>().expect("a number") % 3, 0, "{batch}");
    let (code, told) = plan(little, &["--batch", &batch]);
    assert_eq!(code, 0, "{batch}: {told:?}");
}

#[test]
fn a_part_that_is_named_for_all_replicas_is_refused() {
    let parts = ["--replicas", "2", "--logical", "3MiB,3MiB", "--device", "cpu:0/1"];
    for command in ["train", "plan", "profile"] {
        let message = ["--device", "cpu:0/1", "name the whole device, cpu:0"];
        check_error(&[&[command], &parts[..]].concat(), 2, &message);
    }
    assert_eq!(events(&["plan", "--replicas", "2", "--logical", "3MiB,3MiB", "--device", "cpu:0"]).0, 0);
    // A folder says where its run was.
    let folder = Scratch::new("replicas-part");
    let run = folder.path("run");
    let train = |options: &[&str]| events(&[&["train"], options].concat());
    assert_eq!(train(&[&["--steps", "1", "--out", &run], &parts[..4]].concat()).0, 0);
    assert_eq!(train(&["--resume", &run, "--steps", "2"]).0, 0);
}

#[test]
fn a_saved_plan_is_taken_by_the_replica_that_it_is_of() {
    let folder = Scratch::new("replicas-saved");
    let saved = |options: &[&str]| {
        let file = folder.path("plan.json");
        let told = events(&[&["plan", "--save", &file], options].concat());
        assert_eq!(told.0, 0, "{told:?}");
        (file, told.1)
    };
    let train = |file: &str, options: &[&str]| {
        let out = folder.path(&format!("run {}", options.join(" ")));
        events(&[&["train", "--steps", "1", "--plan", file, "--out", &out], options].concat())
    };
    for options in [
        &["--replicas", "2", "--budget", "2MiB"][..],
        &["--replicas", "3", "--shard", "optimizer"],
        &["--replicas", "2", "--optimizer", "sgd", "--shard", "optimizer"],
        &["--replicas", "2", "--logical", "9MiB,4MiB"],
    ] {
        let (file, planned) = saved(options);
        let (code, told) = train(&file, options);
        assert_eq!(code, 0, "{options:?}: {told:?}");
        let (rank, is_taken) = (planned[0]["replicas"]["rank"].as_u64(), !told[0]["plan_file"].is_null());
        assert_eq!(is_taken, rank == Some(0), "{options:?}: the first event is of replica 0");
    }
    let (file, _) = saved(&["--replicas", "2"]);
    for (options, part) in [
        (&["--replicas", "3", "--lanes", "2"][..], "too few for 3 replicas"),
        (&["--replicas", "1", "--lanes", "2"], "its number of replicas is 2, here it is 1 (use --replicas 2)"),
        (&["--replicas", "2", "--lanes", "4"], "its lanes is 2, here it is 4 (use --lanes 2)"),
        (&["--replicas", "2", "--piece", "4KiB"], "its piece is 1.00MiB, here it is 4.00KiB (use --piece 1.00MiB)"),
        (&["--replicas", "2", "--shard", "optimizer"], "its shard is none, here it is optimizer (use --shard none)"),
        (&["--replicas", "2", "--seed", "7", "--optimizer", "sgd"], "(use --optimizer adam)"),
    ] {
        let (code, told) = train(&file, options);
        let message = told.last().and_then(|e| e["message"].as_str()).unwrap_or_default();
        assert!(code == 2 && message.contains(part), "{options:?}: {code}: {message}");
    }
}

#[test]
fn a_batch_that_replicas_cannot_share_evenly_is_warned_of() {
    for (options, even) in [
        (&["--replicas", "2", "--batch", "31"][..], Some([30, 32])),
        (&["--replicas", "3"], Some([30, 33])),
        (&["--replicas", "3", "--lanes", "4"], None),
        (&["--replicas", "2"], None),
    ] {
        let plan = event(&[&["plan"], options].concat());
        assert_eq!(plan["replicas"]["even_batches"], serde_json::json!(even), "{options:?}");
        let page = stdout(&memfit(&[&["plan"], options].concat()));
        let expected = even.map(|[below, above]| format!("with {below} or {above} samples each has one"));
        assert_eq!(page.contains("  warning "), even.is_some(), "{page}");
        assert!(expected.is_none_or(|expected| page.contains(&expected)), "{page}");
    }
}

#[test]
fn statistics_that_cannot_be_synchronised_come_with_a_cure_that_works() {
    let model = ["--model", "resnet18", "--input", "32x32x3", "--classes", "10", "--batch-norm", "synchronised"];
    for options in [
        &["--batch", "8", "--replicas", "3"][..],
        &["--batch", "8", "--replicas", "2", "--lanes", "4"],
        &["--batch", "8", "--replicas", "2", "--micro-batch", "2"],
        &["--batch", "10", "--replicas", "3", "--micro-batch", "1"],
    ] {
        let (code, told) = events(&[&["plan"], &model[..], options].concat());
        let message = told[0]["message"].as_str().unwrap_or_default();
        assert_eq!(code, 2, "{options:?}: {message}");
        let cure = message.split("; give ").nth(1).and_then(|cure| cure.strip_suffix(", or --batch-norm leaf"));
        let cure: Vec<&str> = cure.unwrap_or_else(|| panic!("{message}")).split(' ').collect();
        // What is given anew stands in the place of what was given.
        let is_new = |pair: &&[&str]| !cure.contains(&pair[0]);
        let kept: Vec<&str> = options.chunks(2).filter(is_new).flatten().copied().collect();
        let (code, told) = events(&[&["plan"], &model[..], &kept, &cure].concat());
        assert_eq!(code, 0, "{kept:?} {cure:?}: {told:?}");
    }
    let message = ["cannot share a batch of 32 in micro-batches of 16", "give --micro-batch 8"];
    check_error(&["plan", "--lanes", "4", "--micro-batch", "16"], 2, &message);
}

#[test]
fn a_run_with_synchronised_statistics_says_with_how_many_replicas_it_goes_on() {
    let folder = Scratch::new("replicas-synchronised");
    let run = folder.path("run");
    let (code, told) =
        events(&[&["train", "--steps", "1", "--batch-norm", "synchronised", "--out", &run], &SHARED[..]].concat());
    assert_eq!(code, 0, "{told:?}");
    check_error(&["train", "--resume", &run, "--steps", "2", "--replicas", "1"], 2, &["go on with --replicas 2"]);
}

#[test]
fn a_replica_without_a_thread_is_an_error_and_no_panic() {
    let folder = Scratch::new("replicas-no-thread");
    let made_up = ["profile", "--model", "mlp", "--batch", "8", "--steps", "2", "--threads", "2"];
    for args in [
        [&made_up[..], &["--out", &folder.path("profile")], &SHARED].concat(),
        [&["train", "--steps", "1", "--threads", "2", "--out", &folder.path("run")], &SHARED[..]].concat(),
    ] {
        // No system has so much for the stack of a thread.
        let output =
            command(&args).env("RUST_MIN_STACK", (1_u64 << 60).to_string()).output().expect("the binary starts");
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(5), "{args:?}: {message}");
        assert!(message.contains("cannot start") && !message.contains("panicked"), "{message}");
    }
}

#[test]
fn what_all_replicas_of_a_process_took_is_told_at_the_end() {
    let folder = Scratch::new("replicas-memory");
    let train = |name: &str, options: &[&str]| {
        let out = folder.path(name);
        [&["train", "--steps", "1", "--out", &out], options]
            .concat()
            .iter()
            .map(|arg| arg.to_string())
            .collect::<Vec<_>>()
    };
    let parts = ["--replicas", "2", "--logical", "9MiB,4MiB"];
    let args = train("json", &parts);
    let (code, told) = events(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let done = told.last().filter(|_| code == 0).expect("it trains");
    let all = &done["replicas"];
    let (sum, most) = (number(all, "arena_bytes"), number(all, "most_arena_bytes"));
    assert!(number(all, "here") == 2 && most >= number(done, "arena_bytes") && sum > most && sum <= 2 * most, "{done}");
    assert!(number(all, "host_peak_bytes") > number(done, "host_peak_bytes"), "{done}");
    let args = train("text", &parts);
    let text = stdout(&memfit(&args.iter().map(String::as_str).collect::<Vec<_>>()));
    assert!(text.contains("arenas of 2 replicas") && text.contains("data pipelines"), "{text}");
    let args = train("alone", &[]);
    let (_, told) = events(&args.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(told.last().is_some_and(|done| done["replicas"].is_null()));
}

#[test]
fn options_that_change_nothing_are_said() {
    for (options, parts) in [
        (&["--piece", "4KiB"][..], &["--piece changes nothing where there is one replica"][..]),
        (&["--link", "1Gbit/s", "--shard", "optimizer"], &["--link changes nothing", "--shard changes nothing"]),
        (&["--replicas", "2", "--shard", "optimizer", "--optimizer", "sgd"], &["--shard saves nothing: sgd keeps no"]),
        (&["--model", "mlp", "--batch-norm", "synchronised"], &["--batch-norm changes nothing: mlp has no batch norm"]),
    ] {
        let args = [&["plan"], options].concat();
        let said = stderr(&args);
        assert_eq!(said.lines().filter(|line| line.starts_with("warning: ")).count(), parts.len(), "{said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
        let (code, told) = events(&args);
        let warnings: Vec<&Value> = told.iter().filter(|event| event["event"] == "warning").collect();
        assert_eq!((code, warnings.len()), (0, parts.len()), "{told:?}");
        assert!(warnings.iter().all(|warning| warning["kind"] == "no_effect" && !warning["message"].is_null()));
        assert_eq!(told[0]["event"], "plan");
    }
    for options in [&["--replicas", "2", "--piece", "4KiB", "--shard", "optimizer"][..], &["--shard", "none"]] {
        assert_eq!(stderr(&[&["plan"], options].concat()), "", "{options:?}");
    }
    let folder = Scratch::new("replicas-in-vain");
    let train = ["train", "--steps", "1", "--stall", "9s", "--out", &folder.path("run")];
    assert!(stderr(&train).contains("warning: --stall changes nothing"));
}

#[test]
fn keys_that_an_error_names_come_with_their_options() {
    let shared = ["train.batch (--batch)", "replicas.count (--replicas)"];
    check_error(&["plan", "--replicas", "33"], 2, &shared);
    check_error(
        &["plan", "--replicas", "2", "--piece", "0"],
        2,
        &["--piece must be between 64 B and 1.00 GiB, but is 0 B"],
    );
    check_error(&["plan", "--replicas", "2", "--piece", "2GiB"], 2, &["between 64 B and 1.00 GiB", "2.00 GiB"]);
}
