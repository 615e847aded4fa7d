//! Training steps over MPI: that from the second on nothing is allocated, by whoever trains or by whoever moves what is exchanged,
//! and that all replicas have the same weights.

use memfit::exec::{Checksum, Executor};
use memfit::ir::Replica;
use memfit::nn::Optimizer;
use memfit::transform::Exchange;
use memfit::{CpuExecutor, Request, Session, TensorView, Training, ZooModel, plan_model};
use memfit_exec::Wire;
use memfit_test_allocator::{Who, count};
use memfit_wire_mpi::Mpi;

use crate::{PATIENCE, Problem, said, same};

const STEPS: usize = 40;

/// Samples of a replica.
const SHARE: usize = 4;

pub fn check(mpi: Mpi) -> Result<(), Problem> {
    let (rank, size) = (mpi.rank(), mpi.size());
    let mut session = session(rank, size)?;
    session.connect(Box::new(mpi.wire(PATIENCE).map_err(said)?)).map_err(problem)?;
    let (of_x, of_y) = ([SHARE, 8, 8, 1], [SHARE]);
    let x: Vec<f32> = (0..SHARE * 64).map(|i| ((i * 7 + rank * 3) % 17) as f32 / 17.0).collect();
    let y: Vec<i32> = (0..SHARE).map(|i| ((i + rank) % 10) as i32).collect();
    let batch = [("x", TensorView::f32(&of_x, &x)), ("y", TensorView::i32(&of_y, &y))];
    let mut steps = |count: usize| (0..count).try_for_each(|_| session.step(&batch, 1e-2).map(drop));
    steps(1).map_err(problem)?;
    let (done, counts) = count(Who::Process, || steps(STEPS));
    done.map_err(problem)?;
    same("allocations in steps after the first", counts.calls, 0)?;
    let names: Vec<String> = session.weights().map(|slot| slot.name.clone()).collect();
    let bytes: Vec<Vec<u8>> =
        names.iter().map(|name| session.weight(name)).collect::<Result<_, _>>().map_err(problem)?;
    drop(session);
    let own = Checksum::of_bytes(&bytes.concat()).to_le_bytes();
    let (mut wire, mut all) = (mpi.wire(PATIENCE).map_err(said)?, vec![0; 8 * size]);
    wire.all_gather(&own, &mut all).map_err(said)?;
    same("the weights of all", all, own.repeat(size))?;
    drop(wire);
    println!("rank {rank} of {size}: passed; nothing is allocated in {STEPS} steps");
    mpi.finish().map_err(said)
}

/// One of so many replicas, with a lane each.
fn session(rank: usize, size: usize) -> Result<Session<CpuExecutor>, Problem> {
    let cpu = CpuExecutor::new(1).map_err(problem)?;
    let model = ZooModel::from_name("digits").map_err(problem)?;
    let training = Training::new(Optimizer::adam().update);
    let replica = Replica { lanes: size, count: size, rank };
    let exchange = Exchange { replica, piece: 1 << 14, ..Exchange::default() };
    let request = Request { exchange, ..Request::new(SHARE * size) };
    let plan = plan_model(&model, &training, cpu.target(), &request).map_err(problem)?;
    Session::new(cpu, plan, 7).map_err(problem)
}

fn problem(error: impl std::fmt::Display) -> Problem {
    error.to_string()
}
