//! States that one replica reads from a file, and all others are given: the same as if each had read them.

use std::collections::BTreeMap;
use std::path::Path;

use memfit_exec::weights::Match;
use memfit_exec::{Wire, WireError, thread_wires};
use memfit_exec_cpu::CpuExecutor;
use memfit_ir::Replica;
use memfit_plan::save::Labels;
use memfit_train::run_dir::{self, SavedStates, set_states, set_weights};
use memfit_train::{CheckpointKind, Progress, Recovery, RunDir, Session, TrainError};
use memfit_transform::Shard;

use crate::common::{bits, file, folder, training};
use crate::counting::peak_of;
use crate::replicas::{EVEN, LANES, STALL, Setting, session};

type Bits = BTreeMap<String, Vec<u8>>;

/// A session with other states than a new one has: each is its number at first.
fn changed() -> Session<CpuExecutor> {
    let mut session = session(&training(), Replica { lanes: LANES, count: 1, rank: 0 }, EVEN);
    let states: Vec<_> = session.weights().map(|slot| (slot.name.clone(), slot.ty.clone())).collect();
    for (i, (name, ty)) in states.iter().enumerate() {
        let bytes: Vec<u8> = (0..ty.bytes()).map(|byte| (byte as usize + 7 * i) as u8).collect();
        let view = memfit_exec::TensorView { dtype: ty.dtype, shape: &ty.shape, bytes: &bytes };
        session.set_weight(name, view).unwrap();
    }
    session
}

fn saved(name: &str) -> (Session<CpuExecutor>, std::path::PathBuf, SavedStates) {
    let (session, folder) = (changed(), folder(name));
    let run = RunDir::create(&folder, session.plan(), &Labels::new()).unwrap();
    run.save(&session, &Progress::default(), &[CheckpointKind::Last]).unwrap();
    let states = run_dir::read(&folder, CheckpointKind::Last).unwrap().into_parts().0;
    (session, folder, states)
}

/// What a replica of so many, and another one of its process, make of a file that the first replica has.
fn together<T: Send>(
    processes: usize,
    shard: Shard,
    set: impl Fn(usize, &mut [&mut Session<CpuExecutor>], &mut dyn FnMut(&mut [u8]) -> Result<(), WireError>) -> T + Sync,
) -> Vec<(T, Vec<Bits>)> {
    // Two in each process, or one where there are not so many lanes.
    let here = if 2 * processes <= LANES { 2 } else { 1 };
    let replica = Replica { lanes: LANES, count: here * processes, rank: 0 };
    let process = |number: usize, mut wire: memfit_exec::ThreadWire| {
        let ranks = number * here..(number + 1) * here;
        let setting = Setting { shard, ..EVEN };
        let mut own: Vec<_> = ranks.map(|rank| session(&training(), replica.with_rank(rank), setting)).collect();
        let mut sessions: Vec<_> = own.iter_mut().collect();
        let set = set(number, &mut sessions, &mut |bytes| wire.broadcast(0, bytes));
        (set, own.iter().map(|session| bits(session).into_iter().collect()).collect())
    };
    std::thread::scope(|scope| {
        let wires = thread_wires(processes, STALL).into_iter().enumerate();
        let threads: Vec<_> = wires.map(|(number, wire)| scope.spawn(move || process(number, wire))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn replicas_without_the_file_have_the_states_that_it_has() {
    let (session, folder, states) = saved("given");
    let expected: Bits = bits(&session).into_iter().collect();
    for (processes, shard) in [(1, Shard::None), (2, Shard::Optimizer), (3, Shard::None), (4, Shard::Optimizer)] {
        let ends = together(processes, shard, |number, sessions, hand_out| {
            set_states(sessions, &states.checkpoint, Some(&states).filter(|_| number == 0), hand_out).unwrap();
        });
        let all: Vec<Bits> = ends.into_iter().flat_map(|(_, bits)| bits).collect();
        for (rank, own) in all.iter().enumerate() {
            let other = own.iter().find(|(name, bytes)| expected[*name] != **bytes);
            assert!(other.is_none(), "replica {rank} of {}: {}", all.len(), other.unwrap().0);
        }
        // Each is somewhere; of the optimizer's no replica has all.
        assert!(expected.keys().all(|name| all.iter().any(|own| own.contains_key(name))));
        assert_eq!(all[0].len() < expected.len(), shard == Shard::Optimizer && all.len() > 1, "{processes}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn weights_are_given_and_the_optimizers_states_stay() {
    let path = file("given.safetensors");
    let given = changed();
    given.save_weights(&path).unwrap();
    let expected: Bits = bits(&given).into_iter().collect();
    let ends = together(2, Shard::Optimizer, |number, sessions, hand_out| {
        let path = if number == 0 { &*path } else { Path::new("not here") };
        set_weights(sessions, path, number == 0, Match::Fitting, hand_out).unwrap()
    });
    let weights = ends[0].0;
    assert!(weights > 0);
    for (taken, replicas) in ends {
        assert_eq!(taken, weights);
        for own in replicas {
            let same = own.iter().filter(|(name, bytes)| expected[*name] == **bytes).map(|(name, _)| name);
            let other = own.iter().filter(|(name, bytes)| expected[*name] != **bytes).map(|(name, _)| name);
            assert_eq!(same.filter(|name| !name.starts_with("optimizer/")).count(), weights);
            assert!(other.clone().count() > 0 && other.clone().all(|name| name.starts_with("optimizer/")));
        }
    }
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_file_that_is_changed_after_it_was_looked_at_is_refused_when_it_is_read() {
    let (_, folder, states) = saved("changed");
    let mut bytes = std::fs::read(states.tensors()).unwrap();
    let at = bytes.len() - 1000;
    bytes[at] ^= 1;
    std::fs::write(states.tensors(), bytes).unwrap();
    let ends = together(2, Shard::None, |number, sessions, hand_out| {
        set_states(sessions, &states.checkpoint, Some(&states).filter(|_| number == 0), hand_out)
    });
    let error = ends.into_iter().next().unwrap().0.unwrap_err();
    assert!(matches!(&error, TrainError::Damaged { recovery: Recovery::ResumeAgain, .. }), "{error}");
    assert!(error.to_string().contains(&states.checkpoint.tensors.name), "{error}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_file_that_ends_early_is_refused_and_whoever_waits_for_it_hears_of_that() {
    let (_, folder, states) = saved("cut");
    let bytes = std::fs::read(states.tensors()).unwrap();
    std::fs::write(states.tensors(), &bytes[..bytes.len() - 1000]).unwrap();
    let ends = together(2, Shard::None, |number, sessions, hand_out| {
        set_states(sessions, &states.checkpoint, Some(&states).filter(|_| number == 0), hand_out)
    });
    let errors: Vec<String> = ends.into_iter().map(|(end, _)| end.unwrap_err().to_string()).collect();
    assert!(errors[0].contains(&states.checkpoint.tensors.name) && errors[0].contains("cut off"), "{errors:?}");
    std::fs::remove_dir_all(folder).unwrap();
}

/// The states are 450 KiB and more.
#[test]
fn nobody_holds_more_of_the_file_than_a_piece() {
    let (session, folder, states) = saved("pieces");
    let mut sessions = [changed(), changed()];
    let [first, second] = &mut sessions;
    let peak = peak_of(|| {
        set_states(&mut [first, second], &states.checkpoint, Some(&states), &mut |_| Ok(())).unwrap();
    });
    assert!(session.plan().state_bytes > 400 << 10 && peak < 128 << 10, "{peak}");
    std::fs::remove_dir_all(folder).unwrap();
}
